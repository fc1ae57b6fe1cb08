"""Non-inferiority: may we say that a candidate loses no more than the margin against the reference?

Rule and literature in docs/method.md. Pure functions of the seeds' metrics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from vrgd_ray.config import require

Verdict = Literal["accept", "reject", "inconclusive"]

_ROUNDING = float(np.finfo(np.float32).eps)
"""Share of the metrics' size below which a difference may be nothing but rounding: 0.95 - 0.94 is not 0.94 - 0.93.

That of float32, since `evaluate` may return the mean of a float32 tensor.
"""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """The rule, fixed before any seed is trained.

    Raises:
        ConfigError: margin, alpha or looks are out of range.
    """

    margin: float
    """Accuracy loss that is accepted: in units of the metric, or a share of the reference when `relative`."""
    mode: Literal["max", "min"]
    """Whether a larger or a smaller metric is better."""
    alpha: float = 0.05
    """Chance of accepting a candidate that is worse by the margin, over all looks together."""
    looks: tuple[int, ...] = (5, 10)
    """Seeds per arm at which the data may be looked at; each look spends an equal part of alpha."""
    relative: bool = False
    """Whether the margin is a share of the reference's metric (positive metrics only)."""
    paired: bool = False
    """Whether candidate and reference seeds are paired (same initialisation and order of samples)."""

    def __post_init__(self) -> None:
        require(math.isfinite(self.margin) and self.margin >= 0, f"margin = {self.margin} must be at least 0.")
        require(
            not self.relative or self.margin < 1,
            f"margin = {self.margin:.0%} of the metric accepts anything; use less.",
        )
        require(0 < self.alpha <= 0.5, f"alpha = {self.alpha} must be above 0 and at most 0.5.")
        require(
            min(self.looks) >= 2 and list(self.looks) == sorted(set(self.looks)),
            f"looks = {self.looks} must be increasing numbers of seeds, at least 2.",
        )

    @property
    def level(self) -> float:
        """One-sided level of a single look."""
        return self.alpha / len(self.looks)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidate against reference at one look, in units of the metric; positive differences are improvements."""

    difference: float
    """Mean of candidate - reference (reference - candidate for mode "min")."""
    lower: float
    """One-sided lower confidence bound of the difference at the look's level."""
    upper: float
    """One-sided upper confidence bound of the difference at the look's level."""
    margin: float
    """The loss that is accepted, in units of the metric (a relative margin times the reference's mean)."""
    verdict: Verdict
    """accept: lower > -margin; reject: upper < -margin; inconclusive otherwise, also at a tie but for rounding."""
    degenerate: bool = False
    """True where neither arm varied, so that no interval could be formed."""


def compare(candidate: Sequence[float], reference: Sequence[float], criterion: Criterion) -> Comparison:
    """Compare two arms by paired t, or by Welch's t where seeds are not paired.

    Args:
        candidate: the metric of each candidate seed, all finite.
        reference: the metric of each reference seed; for paired seeds in the same order.
        criterion: margin, direction and level.

    Raises:
        ConfigError: an arm has fewer than two seeds, paired arms differ in length, or a relative margin meets a
            metric that is not positive.
    """
    c, r = np.asarray(candidate, dtype=float), np.asarray(reference, dtype=float)
    require(min(len(c), len(r)) >= 2, "a comparison needs at least two seeds in each arm.")
    require(bool(np.isfinite(c).all() and np.isfinite(r).all()), "a comparison needs finite metrics.")
    require(not criterion.relative or r.min() > 0, "a relative margin needs a metric that is positive.")
    sign = 1.0 if criterion.mode == "max" else -1.0
    rho = criterion.margin if criterion.relative else 0.0
    # The contrast candidate - (1 - rho) * reference (max; (1 + rho) for min) is tested against `threshold`.
    weighted = r * (1.0 - sign * rho)
    rounding = _ROUNDING * float(max(np.abs(c).max(), np.abs(r).max()))
    error, freedom = _standard_error(c, weighted, paired=criterion.paired)
    error = 0.0 if error <= rounding else error
    margin = rho * float(r.mean()) if criterion.relative else criterion.margin
    difference = sign * float(c.mean() - r.mean())
    reach = float(special.stdtrit(freedom, 1.0 - criterion.level)) * error if error > 0 else 0.0
    lower, upper = difference - reach, difference + reach
    return Comparison(
        difference=difference,
        lower=lower,
        upper=upper,
        margin=margin,
        verdict=_verdict(lower, upper, -margin, rounding),
        degenerate=error == 0.0,
    )


def _standard_error(c: np.ndarray, r: np.ndarray, *, paired: bool) -> tuple[float, float]:
    """Standard error of mean(c) - mean(r) and its degrees of freedom."""
    if paired:
        require(len(c) == len(r), f"paired arms must have as many seeds: {len(c)} and {len(r)}.")
        return float((c - r).std(ddof=1) / math.sqrt(len(c))), len(c) - 1.0
    a, b = float(c.var(ddof=1)) / len(c), float(r.var(ddof=1)) / len(r)
    if a + b == 0.0:
        return 0.0, 1.0
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / (len(c) - 1) + b**2 / (len(r) - 1))


def _verdict(lower: float, upper: float, threshold: float, rounding: float) -> Verdict:
    if lower > threshold + rounding:
        return "accept"
    return "reject" if upper < threshold - rounding else "inconclusive"


def smallest_detectable_margin(num_seeds: int, level: float, power: float = 0.8) -> float:
    """Margin, in standard deviations over seeds, at which an equal candidate is accepted with this power.

    For unpaired arms of `num_seeds` each and one look at the one-sided `level`: the non-central t, as the literature
    states power. `power.smallest_margin` has what this criterion reaches, over all looks and also with pairs.
    """
    freedom = 2 * (num_seeds - 1)
    critical = special.stdtrit(freedom, 1.0 - level)
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = 1.0 - special.nctdtr(freedom, middle * math.sqrt(num_seeds / 2), critical)
        low, high = (low, middle) if reached >= power else (middle, high)
    return high
