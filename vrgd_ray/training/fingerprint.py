"""A fingerprint of the data, so that two searches can be seen to have had the same."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from vrgd_ray.pipeline import Data, Pipeline
from vrgd_ray.training.seeding import seed_generators

NUM_SAMPLES = 16
"""Samples read of each split, spread evenly over it."""


def data_fingerprint(pipeline: Pipeline) -> str | None:
    """Sixteen hexadecimal digits over the size and a few samples of each split.

    None where there is nothing to compare: the data cannot be read in this process (it may be on the workers alone), or
    the same sample reads differently each time (augmentation by other draws than torch's).
    """
    with torch.random.fork_rng(devices=[]):
        try:
            first, second = _digest(pipeline), _digest(pipeline)
        except Exception:  # whatever the user's data raises; if the workers cannot read it either, the search says so
            return None
    return first if first == second else None


def _digest(pipeline: Pipeline) -> str:
    digest = hashlib.sha256()
    for data in (pipeline.train_data(), pipeline.validation_data(), pipeline.test_data()):
        _feed(digest, len(data))
        _feed(digest, _some(data))
    return digest.hexdigest()[:16]


def _some(data: Data) -> Any:
    seed_generators(0, torch.device("cpu"))
    return data[np.linspace(0, len(data) - 1, NUM_SAMPLES).astype(np.int64)]


def _feed(digest: Any, item: Any) -> None:
    """Add a batch of tensors, arrays and plain values, nested in tuples, lists and dicts; of others only the type."""
    if isinstance(item, torch.Tensor):
        _feed(digest, (str(item.dtype), tuple(item.shape)))
        digest.update(item.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(item, np.ndarray) and item.dtype.hasobject:  # whose bytes are addresses
        _feed(digest, item.tolist())
    elif isinstance(item, np.ndarray):
        _feed(digest, (str(item.dtype), item.shape, item.tobytes()))
    elif isinstance(item, dict):
        _feed(digest, [(str(key), value) for key, value in item.items()])
    elif isinstance(item, (list, tuple)):
        digest.update(f"{len(item)} items:".encode())
        for part in item:
            _feed(digest, part)
    else:
        plain = isinstance(item, (str, bytes, int, float, bool, type(None)))
        digest.update((repr(item) if plain else type(item).__name__).encode() + b"\0")
