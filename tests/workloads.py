"""Tiny pipelines for tests; every process that has this folder on its path can load them by name."""

import math
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from vrgd_ray import Recipe, TensorData

CENTRES = torch.tensor([[2.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 2.0, 0.0]], dtype=torch.float64)


class Blobs:
    """Three Gaussian blobs in four dimensions and a perceptron with tanh: smooth, so rounding stays small."""

    metric = "accuracy"
    mode = "max"
    pairable = True
    reference = Recipe(optimizer="adamw", batch_size=24, lr=0.02, epochs=4)

    def __init__(self, num_train_samples: int = 240, dtype: str = "float32", dropout: float = 0.0) -> None:
        self.num_train_samples = num_train_samples
        self.dtype = getattr(torch, dtype)
        self.dropout = dropout

    def build_model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(8, 3)).to(self.dtype)

    def train_data(self):
        return self._draw(self.num_train_samples, seed=1)

    def validation_data(self):
        return self._draw(90, seed=2)

    def test_data(self):
        return self._draw(90, seed=3)

    def loss(self, model, batch):
        inputs, labels = batch
        return F.cross_entropy(model(inputs), labels)

    def evaluate(self, model, data):
        inputs, labels = data.tensors
        return {"accuracy": (model(inputs).argmax(1) == labels).double().mean().item()}

    def _draw(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(size) % 3
        noise = torch.randn(size, 4, generator=generator, dtype=torch.float64)
        return TensorData((CENTRES[labels] + 0.5 * noise).to(self.dtype), labels)


class NormedBlobs(Blobs):
    """The same with batch normalisation and dropout: a model with buffers."""

    def build_model(self):
        layers = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3)
        return nn.Sequential(*layers).to(self.dtype)


class Diverging(Blobs):
    """The loss is `value` from the given pass on; 8 passes are a step of the reference."""

    def __init__(self, after_passes: int = 16, value: float = math.nan) -> None:
        super().__init__()
        self.after_passes, self.value, self.passes = after_passes, value, 0

    def loss(self, model, batch):
        self.passes += 1
        loss = super().loss(model, batch)
        return loss * self.value if self.passes > self.after_passes else loss


class Gated(Blobs):
    """Worker `rank` stops at a pass until a file opens the gate: a test acts on the run at a known place.

    The process that waits writes its id to `folder`/waiting. A second process group never waits again.
    """

    def __init__(self, folder: str, rank: int = 0, at_pass: int = 800) -> None:
        super().__init__(dtype="float64")
        self.folder, self.rank, self.at_pass, self.passes = Path(folder), rank, at_pass, 0

    def loss(self, model, batch):
        self.passes += 1
        here = not torch.distributed.is_initialized() or torch.distributed.get_rank() == self.rank
        if here and self.passes == self.at_pass and not (self.folder / "waiting").exists():
            (self.folder / "partial").write_text(str(os.getpid()))
            (self.folder / "partial").rename(self.folder / "waiting")
            while not (self.folder / "open").exists():
                time.sleep(0.05)
        return super().loss(model, batch)


class GatedTrials(Blobs):
    """Every process stops at its 101st pass until `folder`/open is there, and counts its passes in a file.

    Files are named after the process: `waiting-ID` once it waits, `passes-ID` with one byte for every pass.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(dtype="float64")
        self.folder, self.passes = Path(folder), 0

    def loss(self, model, batch):
        self.passes += 1
        with (self.folder / f"passes-{os.getpid()}").open("a") as file:
            file.write(".")
        if self.passes == 101 and not (self.folder / "open").exists():
            (self.folder / f"waiting-{os.getpid()}").touch()
            while not (self.folder / "open").exists():
                time.sleep(0.05)
        return super().loss(model, batch)


class SlowAlone(Blobs):
    """Takes `pace` seconds a pass while a single worker trains, so that a second one surely arrives before the end.

    `together`: seconds a pass of several workers.
    """

    def __init__(self, pace: float = 0.0, together: float = 0.0) -> None:
        super().__init__(dtype="float64")
        self.pace, self.together = pace, together

    def loss(self, model, batch):
        several = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        time.sleep(self.together if several else self.pace)
        return super().loss(model, batch)


class NotingProcess(Blobs):
    """Writes the id of each process that builds its model, one line a run, to `folder`/processes."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def build_model(self):
        with (self.folder / "processes").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return super().build_model()


class NanMetric(Blobs):
    """Trains well, but its metric is not a number."""

    def evaluate(self, model, data):
        return {"accuracy": math.nan}


class Broken(Blobs):
    """Lacks the member `without`, and has `value` for the member `wrong`."""

    def __init__(self, without: str = "", wrong: str = "", value=None) -> None:
        super().__init__()
        if wrong:
            setattr(self, wrong, value)
        self.without = without

    def __getattribute__(self, name):
        if not name.startswith("__") and name == self.__dict__.get("without"):
            raise AttributeError(name)
        return super().__getattribute__(name)


class BrokenLoss(Blobs):
    """Its loss raises an error that no restart mends."""

    def loss(self, model, batch):
        raise ZeroDivisionError("division by zero")
