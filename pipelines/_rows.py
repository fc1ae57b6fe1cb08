"""Which rows of a table are for training and which are held out for validation, in memory for the latter alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from pipelines._prepare import need

Array: TypeAlias = np.ndarray[Any, Any]
_SPLIT_SEED, _SUBSET_SEED = 2309, 13681
_MOST_HELD_OUT = 50_000


class Rows:
    """Numbers of rows, in ascending order: `rows[i]` is the row of sample i. Nothing is kept for all of them.

    Args:
        size: rows of the table.
        without: rows to leave out, in ascending order.
    """

    def __init__(self, size: int, without: Array | None = None) -> None:
        self._without = np.empty(0, np.int64) if without is None else without
        self._shifts = self._without - np.arange(len(self._without))  # samples before each row that is left out
        self._size = size - len(self._without)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, samples: Array) -> Array:
        return samples + np.searchsorted(self._shifts, samples, side="right")


class Chosen:
    """Some of the rows, drawn with a fixed seed."""

    def __init__(self, rows: Rows | Array, count: int, seed: int) -> None:
        numbers = np.sort(np.random.default_rng(seed).choice(len(rows), count, replace=False))
        self._rows: Array = rows[numbers]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, samples: Array) -> Array:
        return self._rows[samples]


AnyRows: TypeAlias = Rows | Chosen


def train_and_validation(size: int, subset: int | None) -> tuple[AnyRows, AnyRows]:
    """A tenth of the rows, at most 50,000, for validation, the others for training; the same split for everyone.

    `subset` keeps that many rows of each, if there are more.

    Raises:
        ConfigError: there is but one row.
    """
    need(size > 1, "the training table has one row, which would be held out for validation; it needs at least two.")
    held_out = min(_MOST_HELD_OUT, max(1, size // 10))
    validation = np.sort(np.random.default_rng(_SPLIT_SEED).choice(size, held_out, replace=False))
    return some(Rows(size, validation), subset), _validation(validation, subset)


def some(rows: Rows, subset: int | None) -> AnyRows:
    """All rows, or `subset` of them."""
    return rows if subset is None or subset >= len(rows) else Chosen(rows, subset, _SUBSET_SEED)


def _validation(rows: Array, subset: int | None) -> AnyRows:
    return Chosen(rows, min(len(rows), subset or len(rows)), _SUBSET_SEED)
