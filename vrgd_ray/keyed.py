"""Random numbers as a function of keys, so that they do not depend on who draws them, when, or in which order."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_MASK = 2**64 - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """The splitmix64 finalizer, 0..2**64 - 1: neighbouring integers become unrelated ones."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def combine(*parts: int) -> int:
    """One key from several numbers, in this order."""
    key = 0
    for part in parts:
        key = mix(key ^ part)
    return key


def sample_keys(seed: int, epoch: int, samples: Array) -> Array:
    """A key for each sample in this epoch, uint64 of the shape of `samples`: what augmentation is keyed by."""
    return _mix_array(samples.astype(np.uint64) ^ np.uint64(combine(seed, epoch)))


def keyed_uniform(keys: Array, count: int) -> Array:
    """`count` numbers in [0, 1) for each key, always the same for the same key; float64 of shape [len(keys), count]."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = _mix_array(keys.astype(np.uint64)[:, None] + steps[None, :])
    numbers: Array = (bits >> np.uint64(11)) * 2.0**-53
    return numbers


def _mix_array(values: Array) -> Array:
    """`mix` of every element of a uint64 array; a new array."""
    values = values + np.uint64(_GOLDEN)
    values ^= values >> np.uint64(30)
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(27)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(31)
    return values
