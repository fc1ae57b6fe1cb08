"""A few steps of a recipe, timed: what an estimate of a search's cost rests on."""

from __future__ import annotations

import statistics
import time

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.training.context import Context
from vrgd_ray.training.loop import TrainingRun

_WARMUP_STEPS = 2
_MOST_STEPS = 20
_FEWEST_STEPS = 5
_ENOUGH_SECONDS = 0.5


def seconds_per_step(pipeline: Pipeline, recipe: Recipe, context: Context) -> float:
    """Median time of one optimizer step, from 5 to 20 steps (half a second's worth), after two that are not counted."""
    run = TrainingRun(pipeline, recipe, context)
    run.check_evaluation()
    times: list[float] = []
    for _ in range(min(run.total_steps, _WARMUP_STEPS + _MOST_STEPS)):
        started = time.perf_counter()
        run.train_step()
        times.append(time.perf_counter() - started)
        if sum(times) > _ENOUGH_SECONDS and len(times) >= _WARMUP_STEPS + _FEWEST_STEPS:
            break
    return statistics.median(times[_WARMUP_STEPS:] or times)
