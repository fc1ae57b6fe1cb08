"""Seed rows gathered into arms: the metric of each seed, by family, variant and batch size."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.reproduction.intervals import Interval, Values, average, interval, paired_differences, pooled
from benchmarks.reproduction.rows import Row


@dataclass(frozen=True)
class Arm:
    """One column of a table at one batch size."""

    family: str
    """Base optimizer."""
    variant: str
    """"base", "vr" or what the scale was replaced by."""
    batch_size: int
    """Global batch, samples."""


class Arms:
    """The arms of a table. Where several searches trained an arm on the same seeds, the first is taken.

    scale: factor of the metric, as 100 for points of accuracy.
    """

    def __init__(self, rows: Iterable[Row], scale: float = 1.0) -> None:
        self.rates: dict[Arm, float | None] = {}
        self._searches: dict[Arm, str] = {}
        values = defaultdict[Arm, dict[int, float]](dict)
        for row in rows:
            arm = Arm(row["family"], row["variant"], row["batch_size"])
            if self._searches.setdefault(arm, row["search"]) == row["search"]:
                self.rates[arm] = row["lr"]
                values[arm] |= {row["seed"]: scale * row["value"]} if row["value"] is not None else {}
        self.values: dict[Arm, Values] = {arm: values[arm] for arm in self._searches}

    @property
    def families(self) -> list[str]:
        """Base optimizers, in the order of the rows."""
        return list(dict.fromkeys(arm.family for arm in self.values))

    def batch_sizes(self, family: str, variant: str = "vr") -> list[int]:
        """Batch sizes at which a variant was trained, increasing."""
        return sorted(arm.batch_size for arm in self.values if (arm.family, arm.variant) == (family, variant))

    def words(self, arm: Arm) -> str:
        """Mean and standard deviation over the seeds."""
        values = list(self.values.get(arm, {}).values())
        if not values:
            return "diverged" if arm in self.values else ""
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{spread}"

    def difference(self, family: str, batch_size: int, arm: str = "vr", other: str = "base") -> Interval | None:
        """One variant minus another at one batch size, by seed; None where they share no seed.

        The spread of the differences is pooled over the optimizers, at this batch size: a few seeds of one alone would
        leave it all but unknown.
        """
        own = self._differences(family, batch_size, arm, other)
        alike = [self._differences(each, batch_size, arm, other) for each in self.families]
        return interval(own, pooled(alike)) if own else None

    def differences(self, family: str, batch_size: int, other: str = "base") -> dict[str, Interval]:
        """Every variant minus another at one batch size, by seed; the spread is pooled over all of them."""
        found = {
            arm.variant: self._differences(family, batch_size, arm.variant, other)
            for arm in self.values
            if (arm.family, arm.batch_size) == (family, batch_size) and arm.variant != other
        }
        spread = pooled(list(found.values()))
        return {variant: interval(own, spread) for variant, own in found.items() if own}

    def over_families(self, batch_size: int, arm: str = "vr", other: str = "base") -> Interval | None:
        """The mean difference over the optimizers of which both variants trained, as if these were independent."""
        all_found = (self.difference(family, batch_size, arm, other) for family in self.families)
        found = [each for each in all_found if each is not None]
        return average(found) if found else None

    def _differences(self, family: str, batch_size: int, arm: str, other: str) -> list[float]:
        first, second = (self.values.get(Arm(family, variant, batch_size), {}) for variant in (arm, other))
        return paired_differences(first, second)
