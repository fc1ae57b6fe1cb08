"""Refining a bracket of two batch sizes: where to test next, and how many tests that can take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vrgd_ray.config import require

RUNGS_ONLY = 2.0
"""The resolution that refines nothing."""


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """Halves the ratio of a bracket until it is fine enough.

    Raises:
        ConfigError: the resolution is not above 1 and at most 2.
    """

    resolution: float = RUNGS_ONLY
    """Ratio of two batch sizes that need not be told apart; 2 leaves the rungs as they are."""
    unit: int = 1
    """Batch sizes are multiples of this: the number of groups."""

    def __post_init__(self) -> None:
        require(
            1.0 < self.resolution <= RUNGS_ONLY,
            f"resolution = {self.resolution:g} must be above 1 and at most {RUNGS_ONLY:g} (the rungs as they are).",
        )

    def between(self, low: int, high: int) -> int | None:
        """The multiple of `unit` nearest to the geometric mean; None where the bracket is fine enough or has none."""
        if self.resolution == RUNGS_ONLY or high <= low * self.resolution:
            return None
        middle = round(math.sqrt(low * high) / self.unit) * self.unit
        return middle if low < middle < high else None

    def most_tests(self, batch_sizes: Sequence[int]) -> int:
        """Tests that the worst bracket of two neighbours can need."""
        return max((self._depth(low, high) for low, high in pairwise(batch_sizes)), default=0)

    def _depth(self, low: int, high: int) -> int:
        middle = self.between(low, high)
        return 0 if middle is None else 1 + max(self._depth(low, middle), self._depth(middle, high))
