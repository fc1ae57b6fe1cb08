"""Differences between arms that share their seeds, with 95 % intervals whose spread is pooled over like cells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special

Values = Mapping[int, float]
"""Metric of each seed."""


@dataclass(frozen=True)
class Spread:
    """A variance, and what it rests on."""

    variance: float
    """In squared units of the metric."""
    freedom: float
    """Degrees of freedom; 0 where a single seed tells nothing of a spread."""


@dataclass(frozen=True)
class Interval:
    """A mean difference."""

    mean: float
    """In units of the metric."""
    spread: Spread
    """Variance of the mean."""

    @property
    def reach(self) -> float:
        """Half of the two-sided 95 % interval, by Student's t; infinite without any degree of freedom."""
        if self.spread.freedom == 0:
            return math.inf
        return float(special.stdtrit(self.spread.freedom, 0.975)) * math.sqrt(self.spread.variance)

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.reach:.2f}"


def paired_differences(arm: Values, other: Values) -> list[float]:
    """Arm minus other for every seed that both have."""
    return [arm[seed] - other[seed] for seed in sorted(arm.keys() & other.keys())]


def pooled(samples: Sequence[Sequence[float]]) -> Spread:
    """Common variance of samples that differ in their means alone."""
    freedom = sum(max(0, len(sample) - 1) for sample in samples)
    squares = sum(sum((value - statistics.fmean(sample)) ** 2 for value in sample) for sample in samples)
    return Spread(squares / freedom if freedom else math.inf, freedom)


def interval(differences: Sequence[float], spread: Spread) -> Interval:
    """Mean of differences with this spread."""
    return Interval(statistics.fmean(differences), Spread(spread.variance / len(differences), spread.freedom))


def average(found: Sequence[Interval]) -> Interval:
    """Mean of independent intervals that rest on one pooled spread, whose degrees of freedom count once."""
    mean = statistics.fmean(each.mean for each in found)
    variance = sum(each.spread.variance for each in found) / len(found) ** 2
    return Interval(mean, Spread(variance, found[0].spread.freedom))
