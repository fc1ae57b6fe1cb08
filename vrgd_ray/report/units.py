"""How numbers are written: shares as percent, differences as points, as many decimals as the margin deserves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vrgd_ray.report.reading import Result, margin_in_metric, reference_mean

PERCENT_METRICS = ("acc", "accuracy", "top1", "top5")
MISSING = "-"


@dataclass(frozen=True, kw_only=True)
class Units:
    """The unit of the metric and the precision it is shown with."""

    factor: float
    """What the metric is multiplied by before it is shown: 100 for shares, else 1."""
    decimals: int
    """Decimals in sentences; tables show one more."""
    percent: bool
    """True where the shown numbers are percent and their differences are points."""

    @classmethod
    def of(cls, result: Result) -> Units:
        """Choose unit and precision for one result."""
        percent = any(word in PERCENT_METRICS for word in str(result.get("metric")).lower().split("_"))
        factor = 100.0 if percent and _is_share(result) else 1.0
        return cls(factor=factor, decimals=_decimals(result, factor), percent=percent)

    def value(self, number: float | None, extra: int = 0) -> str:
        """A value of the metric, with `extra` decimals beyond those of sentences."""
        return MISSING if number is None else f"{number * self.factor:.{self.decimals + extra}f}"

    def difference(self, number: float | None) -> str:
        """A signed difference of two values."""
        return MISSING if number is None else f"{number * self.factor:+.{self.decimals + 1}f}"

    def amount(self, number: float | None, extra: int = 0) -> str:
        """An unsigned distance with its unit, such as "1.0 points"."""
        return self.value(number, extra) + (" points" if self.percent and number is not None else "")

    def margin(self, result: Result) -> str:
        """The margin as it was asked for: an amount, or a share of the reference."""
        margin = result.get("margin")
        if margin is not None and result.get("relative_margin"):
            return f"{100 * margin:g} % of the reference"
        return self.amount(margin)

    def axis(self, metric: str) -> str:
        """Label of an axis that shows the metric."""
        return f"{shortened(metric)}, %" if self.percent else shortened(metric)


def _is_share(result: Result) -> bool:
    arms = [result.get("reference") or {}, *(result.get("cells") or [])]
    values = [value for arm in arms for value in arm.get("values") or []]
    return all(0 <= value <= 1 for value in values) and (result.get("margin") or 0) <= 1


def _decimals(result: Result, factor: float) -> int:
    """Two significant digits of the margin; where there is none, four of the reference."""
    margin, mean = margin_in_metric(result), reference_mean(result)
    if margin:
        return max(0, 1 - math.floor(math.log10(margin * factor)))
    return max(0, 3 - math.floor(math.log10(abs(mean) * factor))) if mean else 2


def shortened(name: str, room: int = 32) -> str:
    """A name as a figure has room for it."""
    return name if len(name) <= room else f"{name[: room - 1]}…"


def count(number: float | None) -> str:
    """A whole number; thousands are set apart from 10,000 on."""
    if number is None:
        return MISSING
    return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.0f}"


def times(ratio: float) -> str:
    """A ratio in words that fit "... fewer" and "... larger"."""
    return f"{ratio:.1f} times"


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def plain(value: Any) -> str:
    """Any field of a recipe as people write it."""
    if value is None:
        return MISSING
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds in the unit that suits a length of time, and the unit's name."""
    return next((unit for unit in ((3600.0, "hours"), (60.0, "minutes")) if seconds >= 2 * unit[0]), (1.0, "seconds"))
