"""A training run as tracking systems know it."""

from __future__ import annotations

from collections.abc import Mapping

from vrgd_ray.config import Recipe
from vrgd_ray.tracking.tracker import RunRecord
from vrgd_ray.training.result import TrainingResult


def training_record(
    *, key: str, name: str, tags: Mapping[str, str], recipe: Recipe, result: TrainingResult, group: str | None = None
) -> RunRecord:
    """The record of a finished run; `tags` say what it was for."""
    outcome = {"diverged": "true"} if result.diverged else {}
    if result.pruned:
        outcome["pruned"] = "true"
    if result.error:
        outcome["error"] = result.error
    cost = {"steps": float(result.steps), "samples": float(result.samples), "seconds": result.seconds}
    return RunRecord(
        key=key,
        group=group,
        name=name,
        tags={**tags, **outcome},
        params=recipe.to_dict(),
        metrics=result.metrics | cost,
        samples=result.samples,
        series=[(point.samples, point.metrics) for point in result.curve],
        seconds=result.seconds,
        status="FAILED" if result.diverged else "KILLED" if result.pruned else "FINISHED",
    )
