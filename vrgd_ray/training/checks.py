"""What a pipeline's answers and a checkpoint must be, refused in words where they are not."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from vrgd_ray.config import ConfigError, first_line, require
from vrgd_ray.pipeline import Data, Pipeline


def opened_test_data(pipeline: Pipeline) -> Data:
    """Test data, of which a sample has been read, so that a fault of it is found here.

    Raises:
        ConfigError: it is empty.
        Exception: whatever the pipeline raises.
    """
    data = pipeline.test_data()
    require(len(data) > 0, "the pipeline's test_data() holds no samples.")
    with suppress(TypeError):  # `evaluate` alone uses it, and may want what no array indexes, as a DataLoader
        _read_sample(data)
    return data


def check_test_data(pipeline: Pipeline) -> None:
    """Refuse test data that cannot be read where training data can; else all tuning is spent before it is missed.

    Of training and validation data the first trial tells, on the machine that has them.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            _read_sample(pipeline.train_data())
        except Exception:  # whatever the user's data raises; it may be on the workers alone, and test data with it
            return
        try:
            opened_test_data(pipeline)
        except ConfigError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise ConfigError(f"the pipeline's test_data() cannot be read: {reason}.") from error


def _read_sample(data: Data) -> None:
    _ = data[np.zeros(1, dtype=np.int64)]


def checked_metrics(metrics: Any, metric: str) -> dict[str, float]:
    """What `evaluate` returned, as plain floats.

    Raises:
        ConfigError: it is no dict of numbers, or lacks the metric.
    """
    require(isinstance(metrics, dict), f"the pipeline's evaluate() returned {metrics!r}, not a dict of numbers.")
    require(metric in metrics, f"the pipeline's evaluate() returned {sorted(metrics)} without its metric {metric!r}.")
    for name, value in metrics.items():
        require(
            isinstance(value, (int, float)),
            f"the pipeline's evaluate() returned {name} = {value!r} of type {type(value).__name__}; return a float.",
        )
    return {name: float(value) for name, value in metrics.items()}  # a subclass of float would not be plain data


def check_loss(loss: Any) -> None:
    """Refuse a loss that is no scalar tensor.

    Raises:
        ConfigError: naming what it is.
    """
    # On the hot path: the message, which prints a tensor, is made only when it is needed.
    if not isinstance(loss, torch.Tensor):
        raise ConfigError(f"the pipeline's loss() returned {loss!r}, not a tensor.")
    if loss.ndim != 0:
        shape = tuple(loss.shape)
        raise ConfigError(
            f"the pipeline's loss() returned the shape {shape}, not a scalar; return the mean over the batch."
        )


def refuse_other(what: str, saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuse a checkpoint whose `what` is not the run's own.

    Raises:
        ConfigError: naming every value that differs, also of those that only one of them has.
    """
    pairs = {key: (saved.get(key), own.get(key)) for key in (*own, *saved)}
    differing = [f"{key} = {before!r}, not {now!r}" for key, (before, now) in pairs.items() if before != now]
    require(not differing, f"the checkpoint is of another {what}: {'; '.join(differing)}.")


def refuse_other_order(saved: Iterable[str], own: Iterable[str]) -> None:
    """Refuse a checkpoint whose parameters, of the same names, are in another order: the optimizer's state goes by it.

    Raises:
        ConfigError: naming the first that is elsewhere.
    """
    for before, now in zip(saved, own, strict=True):
        require(
            before == now,
            f"the checkpoint is of a model with its layers defined in another order: {before} where {now} is now; "
            "define them in the order they had.",
        )


def load_model(module: nn.Module, saved: dict[str, Any]) -> None:
    """Load parameters and buffers.

    Raises:
        ConfigError: the buffers are others; the parameters are compared before.
    """
    try:
        module.load_state_dict(saved)
    except RuntimeError as error:
        raise ConfigError(f"the checkpoint is of another model: {' '.join(str(error).split())}") from error
