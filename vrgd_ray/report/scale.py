"""One row of a figure of trials: where a value of a field lies between its smallest and its largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vrgd_ray.report.units import plain, shortened

LOG_RATIO = 10.0
"""Ratio of the largest to the smallest value from which a logarithmic scale is used."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Places of values from 0 to 1, evenly for choices, else on a linear or a logarithmic scale."""

    name: str
    """What is shown."""
    choices: tuple[str, ...] = ()
    """The values in words, where they are no numbers or only a few."""
    low: float = 0.0
    """Smallest number."""
    high: float = 1.0
    """Largest number."""
    log: bool = False
    """Whether numbers are placed by their logarithms."""

    @classmethod
    def of(cls, name: str, values: Sequence[Any]) -> Scale:
        """The scale that the values span."""
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        if len(numbers) < len(values) or (name == "batch_size"):
            distinct = {plain(value): value for value in values}
            ordered = sorted(distinct, key=lambda text: distinct[text]) if numbers == list(values) else sorted(distinct)
            return cls(name=shortened(name), choices=tuple(ordered))
        low, high = min(numbers), max(numbers)
        return cls(name=shortened(name), low=low, high=high, log=low > 0 and high / low >= LOG_RATIO)

    def place(self, value: Any) -> float:
        """Place of a value, 0 at the left end and 1 at the right."""
        if self.choices:
            return self.choices.index(plain(value)) / max(1, len(self.choices) - 1)
        if self.high == self.low:
            return 0.5
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float(value - self.low) / (self.high - self.low)

    def marks(self) -> list[tuple[float, str]]:
        """(place, label) of what is written below the row: the choices, or both ends and the middle."""
        if self.choices:
            return [
                (index / max(1, len(self.choices) - 1), shortened(value, 12))
                for index, value in enumerate(self.choices)
            ]
        if self.high == self.low:
            return [(0.5, plain(self.low))]
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return [(self.place(value), f"{value:.3g}") for value in (self.low, middle, self.high)]
