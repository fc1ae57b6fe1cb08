"""What a run on workers tells the process that started it, while it goes on. Plain data that travels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from vrgd_ray.training.result import Progress, TrainingResult


@dataclass(frozen=True, kw_only=True)
class Started:
    """A group of workers begins, or goes on after a restart."""

    num_workers: int
    """Workers in the group."""
    samples: int
    """Training samples seen by the checkpoint it goes on from; 0 at the beginning."""
    curve: list[Progress] = field(default_factory=list)
    """Evaluations up to there."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """Something the user should know."""

    text: str
    """One sentence."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run is over."""

    result: TrainingResult
    """Its outcome."""
    saved: bool = True
    """Whether the trained parameters are in the storage."""


Event: TypeAlias = Started | Progress | Message | Finished
