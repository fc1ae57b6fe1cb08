"""How the best learning rate moved with the batch, and which scaling rule that resembles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vrgd_ray.report.reading import Result, arms_by_batch, optimizers, reference_optimizer
from vrgd_ray.report.units import plain

RULES = {0.0: "a constant rate", 0.5: "square-root scaling", 1.0: "linear scaling"}
UNCERTAIN = 0.25
"""Standard error of the exponent from which two rules, half apart, cannot be told from each other."""

EXACT = 1e-6
"""Standard error of the exponent below which the rates lie on one line, as only carried-over guesses do."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A line through the logarithms: rate proportional to batch ** exponent."""

    rates: dict[int, float]
    """Batch size -> best learning rate, in order of batch."""
    exponent: float
    """Slope of the least-squares line."""
    error: float | None
    """Standard error of the exponent; None with two batches, which any line fits."""

    @classmethod
    def of(cls, rates: dict[int, float]) -> Trend:
        """Fit the line to at least two batch sizes."""
        points = [(math.log(batch), math.log(rate)) for batch, rate in rates.items()]
        x_mean, y_mean = (sum(values) / len(points) for values in zip(*points, strict=True))
        spread = sum((x - x_mean) ** 2 for x, _ in points)
        slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
        rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points)
        error = math.sqrt(rest / (len(points) - 2) / spread) if len(points) > 2 else None
        return cls(rates=rates, exponent=slope, error=error)

    @property
    def rule(self) -> str:
        """The scaling rule the exponent is closest to, or what it is beyond all of them."""
        if self.exponent < -UNCERTAIN:
            return "falling, as no scaling rule has it"
        if self.exponent > 1 + UNCERTAIN:
            return "steeper than linear scaling"
        return f"closest to {RULES[min(RULES, key=lambda power: abs(power - self.exponent))]}"

    @property
    def power(self) -> str:
        """The exponent with its error, as text."""
        return f"{self.exponent:.2f}" + (f" ± {self.error:.2f}" if self.error is not None else "")

    @property
    def caution(self) -> str:
        """Why the rule should not be relied on; empty where it may be."""
        if self.error is None:
            return ", from two batch sizes only"
        return ", too uncertain to rule out its neighbours" if self.error >= UNCERTAIN else ""


def learning_rate_sentence(result: Result) -> str:
    """A sentence on the claimed optimizer, else the reference's, and one on the others; "" where unknown."""
    trends = {name: trend for name in optimizers(result) if (trend := learning_rate_trend(result, name))}
    favoured = ((result.get("largest") or {}).get("optimizer"), reference_optimizer(result), *trends)
    name = next((name for name in favoured if name in trends), None)
    if name is None:
        return ""
    trend = trends.pop(name)
    (first, low), *_, (last, high) = trend.rates.items()
    ends = f"from {plain(low)} at batch {first} to {plain(high)} at {last}"
    rule = f"as the batch to the power {trend.power}: {trend.rule}{trend.caution}"
    return f"With {name} the best learning rate went {ends}, {rule}.{_others(trends)}"


def _others(trends: dict[str, Trend]) -> str:
    powers = [f"with {name} {t.power}{' (two batch sizes)' if t.error is None else ''}" for name, t in trends.items()]
    return f" The power {', '.join(powers)}." if powers else ""


def learning_rate_trend(result: Result, optimizer: str) -> Trend | None:
    """The trend of one optimizer over all batch sizes it was tuned at; None with fewer than two."""
    recipes = {batch: arm.get("recipe") or {} for batch, arm in arms_by_batch(result, optimizer).items()}
    rates = {batch: float(recipe["lr"]) for batch, recipe in recipes.items() if recipe.get("lr")}
    trend = Trend.of(rates) if len(rates) > 1 else None
    # An exact law, or one rate for all, was given or carried over from batch to batch, not found.
    carried = trend is not None and (len(set(rates.values())) == 1 or (trend.error is not None and trend.error < EXACT))
    return None if carried else trend
