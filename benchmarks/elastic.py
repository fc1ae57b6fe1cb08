"""What elastic training costs: beside plain DDP, at a checkpoint, at a restart, and for the order of samples.

    python -m benchmarks.elastic [--steps 15] [--workers 2]

Steps of this project's loop and of plain DDP take turns, so that a busy machine slows both alike; ratios are medians
over rounds. Everything is one thread a process.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gradient_moments import conv_net
from vrgd_ray import Recipe, TensorData
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.sampler import SampleStream
from vrgd_ray.training.worker_context import CheckpointInterval, WorkerContext

BATCH_SIZE = 256
WARM_UP = 2
STALL_TARGET_MS = 50
LARGE = 20_000_000


class Images:
    """Random images of 32 x 32 and a small convolutional network; or a perceptron of 20 M parameters."""

    metric = "loss"
    mode: Literal["max", "min"] = "min"
    pairable = True
    num_train_samples = 4096
    reference = Recipe(optimizer="adamw", batch_size=BATCH_SIZE, lr=1e-3, epochs=1000)

    def __init__(self, build: Callable[[], nn.Module] = conv_net, shape: tuple[int, ...] = (3, 32, 32)) -> None:
        self.build_model, self.shape = build, shape

    def train_data(self) -> TensorData:
        """The same random data at every call."""
        generator = torch.Generator().manual_seed(0)
        size = self.num_train_samples
        return TensorData(
            torch.randn(size, *self.shape, generator=generator), torch.randint(10, (size,), generator=generator)
        )

    validation_data = test_data = train_data

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module, data: Any) -> dict[str, float]:
        """Not what is measured here."""
        return {"loss": 0.0}


def plain_step(rank: int, world_size: int) -> Callable[[], Any]:
    """A step as one writes it without this project: torch's sampler, one pass over the worker's share, fused AdamW."""
    data = Images().train_data()
    model: nn.Module = conv_net()
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    order = iter(torch.split(torch.randperm(len(data)).repeat(1000), BATCH_SIZE))

    def step() -> float:
        indices = next(order)[rank::world_size]
        loss = F.cross_entropy(model(data.tensors[0][indices]), data.tensors[1][indices])
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def compare_steps(rank: int, world_size: int, rounds: int) -> None:
    """Print samples per second of both, and the ratio of their times round by round."""
    run = TrainingRun(Images(), Images.reference, LocalContext(rank=rank, world_size=world_size))
    run.module.train()
    steps = {"plain DDP" if world_size > 1 else "plain torch": plain_step(rank, world_size), "vrgd_ray": run.train_step}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + WARM_UP):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - started)
    plain, own = (np.array(values[WARM_UP:]) for values in times.values())
    if rank == 0:
        for name, values, ratio in zip(steps, (plain, own), (1.0, float(np.median(own / plain))), strict=True):
            print(f"| {world_size} | {name} | {BATCH_SIZE / np.median(values):,.0f} | {ratio:.2f} |", flush=True)


def worker(rank: int, world_size: int, rendezvous: str, rounds: int) -> None:
    """One of several workers of `compare_steps`."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size)
    compare_steps(rank, world_size, rounds)
    dist.destroy_process_group()
    os._exit(0)  # gloo may abort while the interpreter ends


def large_perceptron() -> nn.Module:
    """20 M parameters in few tensors."""
    return nn.Sequential(nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 1424), nn.ReLU(), nn.Linear(1424, 10))


def large_run(folder: Path) -> TrainingRun:
    """A run of 20 M parameters with the optimizer that keeps most."""
    context = WorkerContext(
        store=CheckpointStore(str(folder)),
        emit=lambda event: None,
        interval=CheckpointInterval(seconds=1e9),
        device=torch.device("cpu"),
    )
    recipe = Images.reference.with_values(optimizer="vr_adamw", batch_size=16, epochs=1)
    return TrainingRun(Images(large_perceptron, (1024,)), recipe, context)


def measure_checkpoints(folder: Path, saves: int) -> None:
    """Print how long training stands still for a checkpoint, and how long the writing behind it takes."""
    run = large_run(folder)
    assert isinstance(run.context, WorkerContext)
    run.module.train()
    stalls, writes = [], []
    for _ in range(saves + 1):
        run.train_step()
        started = time.perf_counter()
        run.context.checkpoint(run.state_dict)
        stalls.append(time.perf_counter() - started)
        run.context._writer.finish()
        writes.append(time.perf_counter() - started)
    parameters = sum(parameter.numel() for parameter in run.module.parameters())
    size = max(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(
        f"{parameters / 1e6:.1f} M parameters with VR-AdamW, {size:.0f} MB a checkpoint, {saves} saves after the first:"
    )
    print(
        f"training stands still {1e3 * statistics.median(stalls[1:]):.0f} ms a save (aim: {STALL_TARGET_MS}), "
        f"{1e3 * stalls[0]:.0f} ms at the first; written after {statistics.median(writes[1:]):.2f} s.\n"
    )


def measure_restart(folder: Path) -> None:
    """Print what going on from the checkpoint takes beyond building the run anew."""
    started = time.perf_counter()
    run = large_run(folder)
    restored = time.perf_counter() - started
    assert run.step > 0
    with tempfile.TemporaryDirectory() as empty:
        started = time.perf_counter()
        large_run(Path(empty))
        fresh = time.perf_counter() - started
    print(
        f"Restart, beyond Ray's own: {restored - fresh:.2f} s to read the same checkpoint, {fresh:.2f} s to build the "
        "run.\n"
    )


def measure_sampler(count: int = 20_000_000, read: int = 4096) -> None:
    """Print how fast the order of samples is drawn."""
    for size in (60_000, 1_300_000, 4_000_000_000):
        stream = SampleStream(size, seed=0)
        started = time.perf_counter()
        for start in range(0, count, read):
            stream.indices(start, start + read)
        rate = count / (time.perf_counter() - started)
        print(f"Sampler, {size:,} samples, {read} at a time: {rate / 1e6:.0f} million indices a second.")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="rounds timed")
    parser.add_argument("--workers", type=int, default=2, help="gloo workers of the second comparison")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} CPUs, batch {BATCH_SIZE} in 8 groups\n")
    print("| workers | step | samples/s (median) | time ratio |\n|---|---|---|---|", flush=True)
    compare_steps(0, 1, arguments.steps)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rest = (arguments.workers, f"file://{folder}/rendezvous", arguments.steps)
        spawn(worker, rest, arguments.workers)  # type: ignore[no-untyped-call]
        print()
        measure_checkpoints(folder / "checkpoints", 5)
        measure_restart(folder / "checkpoints")
    measure_sampler()


if __name__ == "__main__":
    main()
