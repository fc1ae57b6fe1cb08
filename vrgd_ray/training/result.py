"""What a training run tells: its progress on the way and its result at the end. Plain data, no torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Split = Literal["validation", "test"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One evaluation on validation data."""

    step: int
    """Optimizer steps done."""
    total_steps: int
    """Optimizer steps of the whole run."""
    samples: int
    """Training samples seen."""
    metrics: dict[str, float]
    """What the pipeline's `evaluate` returned, plus the optimizer's own series (lr, mean_scale, ...)."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Outcome of a run."""

    metrics: dict[str, float]
    """Final metrics on the split asked for; empty when the run diverged."""
    diverged: bool = False
    """True where the loss became NaN or infinite; the run ended there."""
    error: str | None = None
    """What broke the run, in one line; None for one that ran or diverged. A broken run counts as diverged."""
    pruned: bool = False
    """True where a search stopped the run early; `metrics` are then those of its last evaluation."""
    steps: int = 0
    """Optimizer steps done."""
    samples: int = 0
    """Training samples seen."""
    seconds: float = 0.0
    """Time spent in training steps, evaluation excluded."""
    noise_scale: float | None = None
    """Gradient noise scale over the run, samples; None while unresolved."""
    curve: list[Progress] = field(default_factory=list)
    """Evaluations on the way, on validation data."""

    def checked(self, metric: str) -> TrainingResult:
        """This result, or where it claims to have gone well without a finite `metric`, a broken one that says so.

        One that was stopped early because its metric had left the range of numbers has diverged.
        """
        value = self.metrics.get(metric, math.nan)
        if self.diverged or math.isfinite(value):
            return self
        if self.pruned and metric in self.metrics:
            return replace(self, metrics={}, diverged=True, pruned=False)
        known = f"{metric} = {value}, which is not finite" if metric in self.metrics else "nothing for its metric"
        return replace(self, metrics={}, diverged=True, pruned=False, error=f"the run gave {known}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dict for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainingResult:
        """Inverse of `to_dict`."""
        return cls(**{**values, "curve": [Progress(**point) for point in values.get("curve", [])]})
