"""One job trained in this process: what a Tune actor runs when a trial has one worker."""

from __future__ import annotations

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.training.context import Context
from vrgd_ray.training.loop import train
from vrgd_ray.training.result import Split, TrainingResult


def run_trial(source: PipelineSource, recipe: Recipe, split: Split, context: Context) -> TrainingResult:
    """Train a recipe in this process; an exception becomes a result that says what broke."""
    try:
        return train(source.open(), recipe, context, split=split)
    except Exception as error:  # a broken trial is recorded and counts as the worst result; the search goes on
        return broken_result(error)


def broken_result(error: BaseException) -> TrainingResult:
    """The result of a run that an exception ended."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    # Ray's errors open with a generality and close with what happened in the worker.
    said = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return TrainingResult(metrics={}, diverged=True, error=f"{type(error).__name__}: {said[:300]}")
