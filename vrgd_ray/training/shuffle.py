"""Any stretch of a random permutation of 0..size - 1, in constant memory.

A Feistel network over an a x b grid that just covers the numbers: each round moves one coordinate by a hash of the
other, which can be undone, so the whole is a permutation of the grid. Numbers that land beyond `size` go round again.
"""

from __future__ import annotations

import math

import numpy as np

from vrgd_ray.keyed import Array, combine

_ROUNDS = 6
MAX_SIZE = 2**60


def shuffled(start: int, stop: int, size: int, seed: int) -> Array:
    """Places start..stop - 1 of the permutation of 0..size - 1 that belongs to the seed; int64, shape [stop - start].

    `size` is at most 2**60.
    """
    return _permute(np.arange(start, stop, dtype=np.uint64), size, seed).astype(np.int64)


def _permute(numbers: Array, size: int, seed: int) -> Array:
    columns = math.isqrt(size - 1) + 1
    rows = -(-size // columns)
    result = _network(numbers, rows, columns, seed)
    beyond = np.flatnonzero(result >= size)
    if len(beyond):  # about one in sqrt(size)
        result[beyond] = _permute(result[beyond], size, seed)
    return result


def _network(numbers: Array, rows: int, columns: int, seed: int) -> Array:
    row, column = (part.astype(np.uint32) for part in np.divmod(numbers, np.uint64(columns)))
    for number in range(_ROUNDS):
        key = np.uint32(combine(seed, number) & 0xFFFFFFFF)
        if number % 2:
            _shift(column, row, columns, key)
        else:
            _shift(row, column, rows, key)
    result: Array = row.astype(np.uint64) * np.uint64(columns) + column
    return result


def _shift(moved: Array, other: Array, length: int, key: np.uint32) -> None:
    """Add hash(other), brought into 0..length - 1, to `moved` modulo length, in place."""
    moved += ((_hash(other, key).astype(np.uint64) * np.uint64(length)) >> np.uint64(32)).astype(np.uint32)
    # Unsigned subtraction wraps round below zero: the smaller of the two is the remainder.
    np.minimum(moved, moved - np.uint32(length), out=moved)


def _hash(values: Array, key: np.uint32) -> Array:
    """A 32-bit hash of every value."""
    hashed = values ^ key
    for factor, bits in ((0x7FEB352D, 16), (0x846CA68B, 15)):
        hashed ^= hashed >> np.uint32(bits)
        hashed *= np.uint32(factor)
    hashed ^= hashed >> np.uint32(16)
    return hashed
