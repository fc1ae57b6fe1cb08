"""What a search found, as the plain dict that `result.json` holds (fields: docs/result.md)."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from vrgd_ray.config import Recipe
from vrgd_ray.limit.arm import Arm
from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.continuation import total_alpha
from vrgd_ray.limit.criterion import Comparison
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.insights import parameter_importances, series, tuning
from vrgd_ray.limit.power import acceptance, smallest_margin
from vrgd_ray.limit.scale_controls import ScaleControls
from vrgd_ray.search.job import Cell
from vrgd_ray.training.budget import count_steps

SCHEMA_VERSION = 1


def build_outcome(
    finder: Finder,
    *,
    name: str,
    command: str,
    train_command: str,
    seconds: float,
) -> dict[str, Any]:
    """Everything known of the search so far; complete where it has finished, honest where it was cut short."""
    plan, tuned_cells = finder.plan, tuning(finder)
    largest = _largest(finder)
    recommended = largest["recipe"] if largest else _reference_recipe(finder)
    known = {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "status": _status(finder),
        "reason": finder.failure or finder.stop_reason,
        "command": command,
        "seed": plan.seed,
        "concurrent_trials": plan.width,
        "pipeline": plan.pipeline,
        "pipeline_args": plan.pipeline_args,
        "metric": finder.pipeline.metric,
        "mode": finder.pipeline.mode,
        "margin": plan.criterion.margin,
        "relative_margin": plan.criterion.relative,
        "alpha": finder.alpha,
        "continuation": finder.continuation,
        "alpha_total": total_alpha(plan.criterion.alpha, finder.continuation),
        "level_per_look": finder.climb_criterion.level,
        "paired": finder.climb_criterion.paired,
        "looks": list(plan.criterion.looks),
        "optimizers": list(plan.optimizers),
        "batch_sizes": list(plan.batch_sizes),
        "num_train_samples": plan.num_train_samples,
        "resolution": plan.resolution,
        "noise_scale": finder.noise_scale,
        "starts": {name: ladder.start for name, ladder in finder.ladders.items()},
        "reference": _reference(finder),
        "control": _control(finder.control),
        "cells": [_cell(finder, cell) for cell in finder.cells()],
        "controls": _scale_controls(finder.scale_controls),
        "largest": largest,
        "recommended": {"recipe": recommended, "command": train_command} if recommended else None,
        "power": _power(finder),
        "cost": _cost(finder, seconds),
        "curves": _curves(finder),
        "tuning": tuned_cells,
        "importances": parameter_importances(tuned_cells, finder.pipeline.mode),
        "data_fingerprint": plan.data_fingerprint,
        "versions": _versions(),
    }
    return dict(_as_json(known))


def _as_json(value: Any) -> Any:
    """The same with null for numbers that JSON does not have: NaN and the infinities."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _status(finder: Finder) -> str:
    if finder.failure:
        return "failed"
    if finder.stop_reason:
        return "stopped"
    return "finished" if finder.done else "interrupted"


def _largest(finder: Finder) -> dict[str, Any] | None:
    """The largest batch any optimizer may claim, if that is above the reference's; none where that fails."""
    cell = finder.winner
    if not _reference_holds(finder) or cell is None or cell.batch_size <= finder.plan.reference.batch_size:
        return None
    contest = finder.runs[cell].contest
    recipe = contest.arm.recipe.to_dict() if contest else None
    return {"batch_size": cell.batch_size, "optimizer": cell.optimizer, "recipe": recipe}


def _reference_recipe(finder: Finder) -> dict[str, Any] | None:
    """What to train where nothing larger is claimed; nothing where the reference itself fails."""
    arm = finder.reference
    return arm.recipe.to_dict() if arm is not None and _values(arm) and _reference_holds(finder) else None


def _reference_holds(finder: Finder) -> bool:
    """Whether the reference could be trained on all seeds so far, the control's included."""
    return not finder.failure and not (finder.control is not None and finder.control.arm.diverged)


def _reference(finder: Finder) -> dict[str, Any]:
    cell = finder.plan.reference_cell
    facts = {
        "batch_size": cell.batch_size,
        "optimizer": cell.optimizer,
        **_trials(finder.reference_tuning),
    }
    return facts | _arm_facts(finder, finder.reference, finder.plan.reference)


def _control(control: Contest | None) -> dict[str, Any]:
    values = _values(control.arm) if control else []
    reason = control.reason if control else None
    return {"values": values, **_comparison(control), "verdict": _verdict(control), "reason": reason}


def _scale_controls(controls: ScaleControls | None) -> dict[str, Any] | None:
    """The controls of a VR cell that won; null where none did."""
    if controls is None:
        return None
    cell = controls.winner.cell
    facts: dict[str, Any] = {"batch_size": cell.batch_size, "optimizer": cell.optimizer}
    for role, arm in controls.arms.items():
        comparison = _numbers(controls.comparison(role))
        facts[role] = {"values": _values(arm), **comparison, "verdict": controls.finding(role)}
    return facts | {"level": controls.criterion.alpha}


def _cell(finder: Finder, cell: Cell) -> dict[str, Any]:
    run = finder.runs.get(cell)
    contest = run.contest if run else None
    recipe = finder.plan.reference.with_values(batch_size=cell.batch_size, optimizer=cell.optimizer)
    ladder = finder.ladders.get(cell.optimizer)
    criterion = finder.criterion_of(cell)
    return {
        "batch_size": cell.batch_size,
        "optimizer": cell.optimizer,
        "num_groups": contest.arm.recipe.num_groups if contest else recipe.num_groups,
        **_trials(run.tuning if run else None),
        **_arm_facts(finder, contest.arm if contest else None, recipe),
        **_comparison(contest),
        "verdict": (run.verdict if run else None) or "not tested",
        "claim": ladder.claim(cell.batch_size) if ladder else "not tested",
        "alpha": criterion.alpha if ladder else None,
        "level_per_look": criterion.level if ladder else None,
        "reason": run.reason if run else None,
    }


def _trials(tuning: CellTuning | None) -> dict[str, int]:
    """Finished trials, and how many of them have no final metric, by cause."""
    if tuning is None:
        return dict.fromkeys(("trials", "diverged", "broken", "pruned"), 0)
    study = tuning.study
    lost = {"diverged": tuning.diverged, "broken": len(tuning.errors), "pruned": len(study.pruned)}
    return {"trials": len(study.results), **lost}


def _arm_facts(finder: Finder, arm: Arm | None, fallback: Recipe) -> dict[str, Any]:
    values = _values(arm)
    results = [r for r in arm.results.values() if not r.diverged] if arm else []
    return {
        "seeds": _seeds(arm, diverged=False),
        "failed_seeds": _seeds(arm, diverged=True),
        "values": values,
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "steps": count_steps(arm.recipe if arm else fallback, finder.plan.num_train_samples),
        "samples_per_second": _median([r.samples / r.seconds for r in results if r.seconds > 0]),
        "noise_scale": _median([r.noise_scale for r in results if r.noise_scale is not None]),
        "recipe": arm.recipe.to_dict() if arm else None,
    }


def _seeds(arm: Arm | None, *, diverged: bool) -> list[int]:
    """Seeds in order: those with a metric, or those that diverged or that an error broke."""
    if arm is None:
        return []
    return [arm.seed_of(index) for index in sorted(arm.results) if arm.results[index].diverged == diverged]


def _values(arm: Arm | None) -> list[float]:
    """Metrics in the order of the seeds, without those that diverged."""
    if arm is None:
        return []
    return [arm.results[i].metrics[arm.metric] for i in sorted(arm.results) if not arm.results[i].diverged]


def _comparison(contest: Contest | None) -> dict[str, Any]:
    return _numbers(contest.comparison if contest else None)


def _numbers(comparison: Comparison | None) -> dict[str, Any]:
    names = ("difference", "lower", "upper", "degenerate")
    return {name: getattr(comparison, name) if comparison else None for name in names}


def _verdict(contest: Contest | None) -> str:
    return (contest.verdict if contest else None) or "not tested"


def _power(finder: Finder) -> dict[str, Any] | None:
    """Spread over the reference's seeds, and what equal cells could be accepted with, at the level of the climb."""
    values = _values(finder.reference)
    if len(values) < 2:
        return None
    rule = finder.climb_criterion
    std, margin = statistics.stdev(values), rule.margin * (statistics.fmean(values) if rule.relative else 1.0)
    return {
        "seed_std": std,
        **{f"detectable_{n}": std * smallest_margin(replace(rule, looks=(n,), alpha=rule.level)) for n in rule.looks},
        "detectable": std * smallest_margin(rule),
        "margin_in_std": margin / std if std > 0 else None,
        "acceptance": acceptance(rule, margin / std) if std > 0 else None,
    }


def _cost(finder: Finder, seconds: float) -> dict[str, Any]:
    results = [result for _, result in finder.trained.values()]
    return {
        "samples": sum(result.samples for result in results),
        "seconds": seconds,
        "trials": len(results),
        "training_seconds": sum(result.seconds for result in results),
    }


def _curves(finder: Finder) -> list[dict[str, Any]]:
    contests = [run.contest for run in finder.runs.values() if run.contest is not None]
    arms = ([finder.reference] if finder.reference else []) + [contest.arm for contest in contests]
    return [curve for arm in arms if (curve := _curve(arm)) is not None]


def _curve(arm: Arm) -> dict[str, Any] | None:
    """Validation metric against samples seen, averaged over the seeds."""
    curves = [r.curve for r in arm.results.values() if not r.diverged and r.curve]
    if not curves:
        return None
    means = [statistics.fmean(p.metrics[arm.metric] for p in points) for points in zip(*curves, strict=False)]
    samples = [point.samples for point in curves[0]][: len(means)]
    return {
        "batch_size": arm.cell.batch_size,
        "optimizer": arm.cell.optimizer,
        "samples": samples,
        "values": means,
        "series": series(arm),
    }


def _versions() -> dict[str, str]:
    names = ("vrgd-ray", "torch", "ray", "optuna", "mlflow", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
