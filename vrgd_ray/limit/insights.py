"""What a search learnt besides its verdict: every trial, which hyper-parameters mattered, series over training."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from vrgd_ray.limit.arm import Arm
from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.finder import Finder
from vrgd_ray.search.importance import importances, ranks
from vrgd_ray.training.result import Progress

SERIES = (
    *("noise_scale", "noise_scale_low", "noise_scale_high"),
    *("mean_scale", "step_ratio", "scale_q10", "scale_q50", "scale_q90"),
)
"""What the report shows over training besides the metric."""


def tuning(finder: Finder) -> list[dict[str, Any]]:
    """Every finished trial of every cell, the reference's first: the values searched and the validation metric."""
    return [
        {"batch_size": tuned.cell.batch_size, "optimizer": tuned.cell.optimizer, "trials": _trials(tuned)}
        for tuned in (finder.reference_tuning, *(run.tuning for run in finder.runs.values()))
        if tuned.study.results
    ]


def parameter_importances(tuned: Sequence[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    """For each optimizer the share of the spread between its trials that each field explains, over all its cells.

    Trials are scored by their rank within the cell, and the learning rate counts relative to the square root of the
    batch: so what is explained is what a choice did at a given batch, not what the batch did.
    """
    trials = defaultdict[str, list[tuple[dict[str, Any], float]]](list)
    for cell in tuned:
        stops = [(index, trial["pruned"]) for index, trial in enumerate(cell["trials"]) if trial["pruned"]]
        pruned = {index: (stop["samples"], stop["metric"]) for index, stop in stops}
        scores = ranks([trial["metric"] for trial in cell["trials"]], mode, pruned)
        values = [_at_batch_one(trial["values"], cell["batch_size"]) for trial in cell["trials"]]
        trials[cell["optimizer"]] += zip(values, scores, strict=True)
    return [
        {"optimizer": name, "trials": len(own), "shares": shares}
        for name, own in trials.items()
        if (shares := importances(own))
    ]


def series(arm: Arm) -> dict[str, list[float | None]]:
    """Medians over the arm's seeds of what was logged at each evaluation; None where no seed has a value."""
    curves = [result.curve for result in arm.results.values() if not result.diverged and result.curve]
    points = list(zip(*curves, strict=False))
    medians = {name: [_median(name, seeds) for seeds in points] for name in SERIES}
    return {name: values for name, values in medians.items() if any(value is not None for value in values)}


def _trials(tuned: CellTuning) -> list[dict[str, Any]]:
    study = tuned.study
    return [
        {
            "values": study.suggestions[index],
            "metric": study.results[index],
            "pruned": _stop(*study.pruned[index]) if index in study.pruned else None,
            "error": tuned.errors.get(index),
        }
        for index in sorted(study.results)
    ]


def _stop(samples: int, metric: float) -> dict[str, float]:
    return {"samples": samples, "metric": metric}


def _at_batch_one(values: dict[str, Any], batch_size: int) -> dict[str, Any]:
    return {**values, "lr": values["lr"] / math.sqrt(batch_size)} if "lr" in values else values


def _median(name: str, points: Sequence[Progress]) -> float | None:
    values = [point.metrics[name] for point in points if math.isfinite(point.metrics.get(name, math.nan))]
    return statistics.median(values) if values else None
