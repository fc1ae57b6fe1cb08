"""What a criterion can see: the chance that an equal candidate is accepted, over all looks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special

from vrgd_ray.limit.criterion import Criterion

_REPETITIONS = 100_000
_SEED = 20_240_531
_Moments = tuple[np.ndarray, np.ndarray]


def acceptance(criterion: Criterion, margin_in_std: float) -> float:
    """Chance that a candidate equal to the reference is accepted, over all looks together.

    margin_in_std: the margin in standard deviations of the metric over seeds, the same in both arms. Seeds are taken
    as normal and arms as independent; for a paired criterion the paired test is used, and what pairs share would
    raise the chance. Simulated with a fixed seed: standard error at most 0.16 points.
    """
    margins = _smallest_margins(criterion.level, criterion.looks, criterion.paired)
    return float(np.searchsorted(margins, margin_in_std) / len(margins))


def smallest_margin(criterion: Criterion, power: float = 0.8) -> float:
    """Margin, in standard deviations over seeds, at which an equal candidate is accepted with this chance."""
    return float(np.quantile(_smallest_margins(criterion.level, criterion.looks, criterion.paired), power))


@lru_cache(maxsize=32)
def _smallest_margins(level: float, looks: tuple[int, ...], paired: bool) -> np.ndarray:
    """For every simulated pair of equal arms the margin above which it is accepted; sorted, in standard deviations.

    A look accepts margins above `reach - difference` and rejects those below `-reach - difference`. So the looks from
    one on accept above the smaller of what this one accepts, and the larger of what it does not reject and what the
    later ones accept.
    """
    generator = np.random.default_rng(_SEED)
    arms = [_moments(generator, looks, 2.0)] if paired else [_moments(generator, looks, 1.0) for _ in range(2)]
    found = np.full(_REPETITIONS, np.inf)
    for look in reversed(range(len(looks))):
        difference, reach = _bounds([arm[look] for arm in arms], looks[look], level)
        found = np.minimum(reach - difference, np.maximum(-reach - difference, found))
    return np.sort(found)


def _moments(generator: np.random.Generator, looks: tuple[int, ...], variance: float) -> list[_Moments]:
    """Mean and sum of squared deviations of normal seeds at every look, each look's with those before it."""
    mean, squares, seeds = np.zeros(_REPETITIONS), np.zeros(_REPETITIONS), 0
    found = []
    for look in looks:
        new = look - seeds
        new_mean = generator.standard_normal(_REPETITIONS) * np.sqrt(variance / new)
        if new > 1:
            squares = squares + variance * generator.chisquare(new - 1, _REPETITIONS)
        squares = squares + (new_mean - mean) ** 2 * seeds * new / look
        mean, seeds = (seeds * mean + new * new_mean) / look, look
        found.append((mean, squares))
    return found


def _bounds(arms: list[_Moments], seeds: int, level: float) -> _Moments:
    """Difference of the means and the reach of its one-sided bounds, as `criterion.compare` forms them.

    One arm stands for the differences of paired seeds.
    """
    errors = [squares / (seeds - 1) / seeds for _, squares in arms]
    if len(arms) == 1:
        return arms[0][0], special.stdtrit(seeds - 1, 1.0 - level) * np.sqrt(errors[0])
    a, b = errors
    freedom = (a + b) ** 2 / (a**2 + b**2) * (seeds - 1)
    # The quantile is smooth in the degrees of freedom, which lie between n - 1 and 2(n - 1): a table is exact enough.
    table = np.linspace(seeds - 1, 2 * (seeds - 1), 200)
    reach = np.interp(freedom, table, special.stdtrit(table, 1.0 - level)) * np.sqrt(a + b)
    return arms[0][0] - arms[1][0], reach
