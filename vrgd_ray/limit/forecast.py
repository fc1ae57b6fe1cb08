"""How long a search takes: the jobs it will ask for, and the time a step of each costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.ladder import Ladder
from vrgd_ray.limit.plan import SearchPlan
from vrgd_ray.limit.power import acceptance, smallest_margin
from vrgd_ray.optim.registry import is_vr
from vrgd_ray.search.job import Cell
from vrgd_ray.training.budget import count_steps

_MARGINS = (1.0, 1.5, 2.0, 3.0)
"""Margins, in standard deviations over seeds, whose chances --dry-run states."""


def planned_jobs(plan: SearchPlan, *, every_look: bool) -> dict[Cell, int]:
    """Jobs of each cell if the whole ladder is climbed, with the first look only or with both.

    The reference's cell counts its control too.
    """
    seeds = plan.criterion.looks[-1 if every_look else 0]
    jobs = {plan.reference_cell: plan.trials + 2 * seeds}
    return jobs | dict.fromkeys(plan.cells(), plan.trials + seeds)


def planned_samples(plan: SearchPlan, *, every_look: bool) -> int:
    """Training samples of `planned_jobs`; the same number for every job, up to rounding to whole steps."""
    return sum(
        count * _steps(plan, cell) * cell.batch_size
        for cell, count in planned_jobs(plan, every_look=every_look).items()
    )


def planned_seconds(plan: SearchPlan, seconds_per_step: Mapping[Cell, float], *, every_look: bool) -> float:
    """Training time of `planned_jobs` on one worker at a time."""
    return sum(
        count * _steps(plan, cell) * seconds_per_step[cell]
        for cell, count in planned_jobs(plan, every_look=every_look).items()
    )


def describe_plan(
    plan: SearchPlan, seconds_per_step: Mapping[Cell, float], *, concurrent_trials: int, metric: str
) -> str:
    """The plan and its cost in words, for --dry-run."""
    rows = [f"{'batch':>8}  {'optimizer':<10}{'steps':>8}{'ms a step':>11}{'trials':>8}{'seeds':>8}"]
    for cell in planned_jobs(plan, every_look=False):
        rows.append(
            f"{cell.batch_size:>8}  {cell.optimizer:<10}{_steps(plan, cell):>8}{1e3 * seconds_per_step[cell]:>11.2f}"
            f"{plan.trials:>8}{_seeds_in_words(plan, cell):>8}"
        )
    return "\n".join([*rows, "", *_cost_lines(plan, seconds_per_step, concurrent_trials), *_rule_lines(plan, metric)])


def _seeds_in_words(plan: SearchPlan, cell: Cell) -> str:
    looks = "-".join(map(str, plan.criterion.looks))
    return f"2x{looks}" if cell == plan.reference_cell else looks


def _cost_lines(plan: SearchPlan, seconds_per_step: Mapping[Cell, float], concurrent_trials: int) -> list[str]:
    few, many = (sum(planned_jobs(plan, every_look=look).values()) for look in (False, True))
    samples = [planned_samples(plan, every_look=look) / 1e6 for look in (False, True)]
    seconds = [planned_seconds(plan, seconds_per_step, every_look=look) / concurrent_trials for look in (False, True)]
    count = len(list(plan.cells()))
    cells = f"{count} cell{'s' if count > 1 else ''}"
    return [
        f"All {cells} and the reference: {few} runs, fewer where seeds diverge."
        if plan.full_grid
        else f"At most {cells} and the reference: {few} runs if every cell is decided at the first "
        f"look, {many} if none is; fewer where the climb ends early or starts where the noise scale points.",
        *_extra_lines(plan),
        f"Samples: {samples[0]:.3g} to {samples[1]:.3g} million.",
        f"Training time with {concurrent_trials} at once, as timed here: about {seconds[0] / 60:.1f} to "
        f"{seconds[1] / 60:.1f} minutes, evaluation and start-up (about half a minute) not counted.",
    ]


def _extra_lines(plan: SearchPlan) -> list[str]:
    """What comes on top only where the search ends in a certain way."""
    tests, seeds = plan.bisection.most_tests(plan.batch_sizes), "-".join(str(2 * n) for n in plan.criterion.looks)
    extra = [
        f"up to {tests} cells an optimizer to bracket the limit to a ratio of {plan.resolution:g}" if tests else "",
        f"{seeds} runs for the controls of a VR optimizer that wins"
        if plan.controls and any(map(is_vr, plan.optimizers))
        else "",
    ]
    return [f"Not counted: {', and '.join(filter(None, extra))}."] if any(extra) else []


def _rule_lines(plan: SearchPlan, metric: str) -> list[str]:
    rule = plan.criterion
    margin = f"{100 * rule.margin:g} % of the reference's {metric}" if rule.relative else f"{rule.margin:g} of {metric}"
    share = Ladder(plan.batch_sizes, bisection=plan.bisection).share(plan.batch_sizes[0])
    own = replace(rule, alpha=rule.alpha / len(plan.optimizers) * share)
    half = replace(own, alpha=own.alpha / 2)
    chances = [f"{100 * acceptance(own, margin):.0f} % at {margin:g}" for margin in _MARGINS]
    return [
        f"Margin: {margin}; alpha {rule.alpha:g} over {len(plan.optimizers)} optimizers and "
        f"{len(rule.looks)} look{'s' if len(rule.looks) > 1 else ''}.",
        f"An equal candidate is accepted 80 % of the time if the margin is {smallest_margin(own):.2f} standard "
        f"deviations over seeds ({smallest_margin(half):.2f} where the climb starts higher up with half of the level).",
        f"By the margin in standard deviations: {', '.join(chances)}"
        + (", more often where paired seeds go together." if rule.paired else "."),
    ]


def seconds_left(finder: Finder, concurrent_trials: int) -> float | None:
    """Time left if every remaining rung is climbed with one look; None until something has finished."""
    results = [(job, result) for job, result in finder.finished.values() if result.steps]
    if not results:
        return None
    seconds_per_step = sum(r.seconds for _, r in results) / sum(r.steps for _, r in results)
    done = Counter(job.cell for job, _ in finder.finished.values())
    left = 0.0
    for cell, count in planned_jobs(finder.plan, every_look=False).items():
        if not _settled(finder, cell):
            left += max(0, count - done[cell]) * _steps(finder.plan, cell) * seconds_per_step
    return left / concurrent_trials


def _steps(plan: SearchPlan, cell: Cell) -> int:
    return count_steps(plan.reference.with_values(batch_size=cell.batch_size), plan.num_train_samples)


def _settled(finder: Finder, cell: Cell) -> bool:
    run = finder.runs.get(cell)
    if run is not None:
        return run.verdict is not None
    ladder = finder.ladders.get(cell.optimizer)
    return cell != finder.plan.reference_cell and ladder is not None and not ladder.may_come(cell.batch_size)
