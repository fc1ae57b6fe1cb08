"""Differences between arms that share their seeds, with 95 % intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special

Values = Mapping[int, float]
"""Metric of each seed."""


@dataclass(frozen=True)
class Interval:
    """A mean difference over seeds."""

    mean: float
    """Mean over the seeds, in units of the metric."""
    reach: float
    """Half of the two-sided 95 % interval, by Student's t; infinite for a single seed."""

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.reach:.2f}"


def paired_difference(arm: Values, other: Values) -> Interval | None:
    """Arm minus other, seed by seed; None where they share no seed."""
    shared = sorted(arm.keys() & other.keys())
    return _interval([arm[seed] - other[seed] for seed in shared]) if shared else None


def mean_difference(pairs: Sequence[tuple[Values, Values]]) -> Interval | None:
    """Arm minus other averaged over several cells, then over seeds; None without a seed that all cells share.

    Cells share their seeds, so their differences may go together: the seeds, not the cells, are the sample.
    """
    if not pairs:
        return None
    shared = sorted(set.intersection(*({*arm} & {*other} for arm, other in pairs)))
    return _interval([statistics.fmean(arm[s] - other[s] for arm, other in pairs) for s in shared]) if shared else None


def _interval(differences: list[float]) -> Interval:
    count = len(differences)
    if count == 1:
        return Interval(differences[0], math.inf)
    error = statistics.stdev(differences) / math.sqrt(count)
    return Interval(statistics.fmean(differences), float(special.stdtrit(count - 1, 0.975)) * error)
