"""Learning-rate schedules: small dataclasses with a pure `factor(step, total_steps)`.

The learning rate of a step is `recipe.lr * factor`. Steps count from 0 to total_steps - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from vrgd_ray.config import nearest, require


class Schedule(Protocol):
    """What every schedule offers."""

    def factor(self, step: int, total_steps: int) -> float:
        """Multiple of the peak learning rate at this step, 0..1."""
        ...


@dataclass(frozen=True)
class Constant:
    """The peak learning rate throughout."""

    def factor(self, step: int, total_steps: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from the peak to zero."""

    def factor(self, step: int, total_steps: int) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * step / total_steps))


@dataclass(frozen=True)
class Polynomial:
    """(1 - progress) ** power; power 1 is the straight line."""

    power: float = 2.0
    """Exponent, unit-free; above 0."""

    def factor(self, step: int, total_steps: int) -> float:
        return float((1.0 - step / total_steps) ** self.power)


@dataclass(frozen=True)
class Warmup:
    """A straight line up to the peak over the first steps, then another schedule over the rest."""

    then: Schedule
    """Schedule after the warm-up; it sees only the steps that remain."""
    fraction: float = 0.0
    """Share of all steps spent warming up, 0..1."""

    def factor(self, step: int, total_steps: int) -> float:
        warmup_steps = round(self.fraction * total_steps)
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return self.then.factor(step - warmup_steps, total_steps - warmup_steps)


SCHEDULES: dict[str, Schedule] = {
    "constant": Constant(),
    "cosine": Cosine(),
    "linear": Polynomial(power=1.0),
    "polynomial": Polynomial(power=2.0),
}


def create_schedule(name: str, warmup_fraction: float = 0.0) -> Schedule:
    """Return the named schedule behind a linear warm-up.

    Raises:
        ConfigError: no schedule has this name (the nearest valid one is named).
    """
    require(name in SCHEDULES, f"unknown schedule {name!r}: {nearest(name, list(SCHEDULES))}")
    return Warmup(SCHEDULES[name], warmup_fraction)
