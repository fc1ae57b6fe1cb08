"""What a search costs beside a full grid, on a simulated trainer whose answer is known, and on the digits.

    python -m benchmarks.finder [--repetitions 20] [--trials 8] [--digits] [--output benchmarks/results/finder.md]

Both tune every cell they visit with the same trials and judge it by the same criterion; the grid visits every batch
size from the bottom to the top. The simulation trains nothing; --digits adds real training, a quarter of an hour on one
core. No trial is pruned, so the ratio is one of training samples.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from vrgd_ray import Recipe
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.plan import SearchPlan, default_ladder
from vrgd_ray.pipeline import Pipeline, load_pipeline
from vrgd_ray.search.job import Job
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train
from vrgd_ray.training.result import TrainingResult

NUM_TRAIN_SAMPLES = 65_536
REFERENCE = Recipe(optimizer="adamw", batch_size=32, lr=1e-3, epochs=2, weight_decay=0.01)
RUNGS = tuple(32 * 2**i for i in range(11))
MARGIN = 0.01
SPREADS = (0.25, 0.4)
Trainer = Callable[[Job], TrainingResult]

_INTRODUCTION = f"""\
`python -m benchmarks.finder`: {{repetitions}} simulated workloads, {{trials}} trials in every cell, two looks at 5
and 10 seeds, adamw and vr_adamw over {len(RUNGS)} batch sizes from {RUNGS[0]} to {RUNGS[-1]}. At its limit an
optimizer loses 0.2 margins, at twice that 1.6; the noise scale is the base's limit, off by a factor of up to 2 either
way. Pruning is left out. Counts, not times: they do not depend on the machine. Most of what is saved are batch sizes
far from the limit, so a shorter ladder saves less. With seeds that spread more, both ways miss limits for want of
power."""


class SimulatedPipeline:
    """What the finder reads of a pipeline."""

    metric, mode, pairable = "accuracy", "max", False
    num_train_samples = NUM_TRAIN_SAMPLES
    reference = REFERENCE


@dataclass(frozen=True, kw_only=True)
class World:
    """One workload: how large a batch each optimizer bears, and what the gradient noise scale says of it."""

    limits: dict[str, int]
    """Largest batch without loss of each optimizer: 0.2 margins are lost there, 1.6 at twice that."""
    noise_scale: float
    """The base optimizer's limit, off by a factor of up to 2 either way."""
    spread: float
    """Standard deviation over seeds, in margins."""
    seed: int
    """Seed of everything random in it."""

    @classmethod
    def draw(cls, spread: float, seed: int) -> World:
        """The base's limit is any rung above the reference but the last two; the twin's is the same or twice that."""
        generator = random.Random(seed)
        limit = generator.choice(RUNGS[1:-2])
        limits = {"adamw": limit, "vr_adamw": limit * generator.choice((1, 2))}
        return cls(limits=limits, noise_scale=limit * 2 ** generator.uniform(-1, 1), spread=spread, seed=seed)

    def train(self, job: Job) -> TrainingResult:
        """Accuracy falls with the batch beyond the limit and off the best learning rate; seeds scatter it."""
        recipe, limit = job.recipe, self.limits[job.cell.optimizer]
        generator = random.Random(f"{self.seed}/{job.key}")
        best = self._best_rate(recipe.batch_size, limit)
        loss = 0.2 * (recipe.batch_size / limit) ** 3 + 0.3 * math.log(recipe.lr / best) ** 2
        accuracy = 0.95 - MARGIN * min(loss, 20.0) + MARGIN * generator.gauss(0, self.spread)
        steps = 2 * NUM_TRAIN_SAMPLES // recipe.batch_size
        return TrainingResult(
            metrics={"accuracy": accuracy}, steps=steps, samples=2 * NUM_TRAIN_SAMPLES, noise_scale=self.noise_scale
        )

    @staticmethod
    def _best_rate(batch_size: int, limit: int) -> float:
        """lr_max/(1 + B_crit/B) (arXiv 1812.06162, eq. 2.6), 1.5 times the reference's rate at its batch."""
        return 1.5 * REFERENCE.lr * (1 + limit / REFERENCE.batch_size) / (1 + limit / batch_size)


@dataclass(frozen=True)
class Repetition:
    """One world, searched both ways."""

    world: World
    finder: Finder
    grid: Finder

    @property
    def ratio(self) -> float:
        """Training samples of the search over the grid's."""
        return samples(self.finder) / samples(self.grid)

    @property
    def same(self) -> bool:
        """Whether both claim the same batch for each optimizer."""
        return claims(self.finder) == claims(self.grid)

    @property
    def right(self) -> bool:
        """Whether the search claims exactly the limits."""
        return claims(self.finder) == self.world.limits


def search(plan: SearchPlan, train: Trainer, pipeline: Pipeline | None = None) -> Finder:
    """Run one search to its end, one job at a time."""
    finder = Finder(plan, pipeline or cast(Pipeline, SimulatedPipeline()))
    while (job := finder.next_job()) is not None:
        finder.observe(job, train(job))
    return finder


def samples(finder: Finder) -> int:
    """Training samples of a search."""
    return sum(result.samples for _, result in finder.finished.values())


def claims(finder: Finder) -> dict[str, int | None]:
    """The largest batch each optimizer may claim."""
    return {name: ladder.largest for name, ladder in finder.ladders.items()}


def make_plan(trials: int, seed: int) -> SearchPlan:
    """Two optimizers over eleven batch sizes; the scale's controls, which a grid lacks too, are left out."""
    return SearchPlan(
        pipeline="simulated",
        pipeline_args={},
        reference=REFERENCE,
        num_train_samples=NUM_TRAIN_SAMPLES,
        optimizers=("adamw", "vr_adamw"),
        batch_sizes=RUNGS,
        trials=trials,
        criterion=Criterion(margin=MARGIN, mode="max"),
        seed=seed,
        controls=False,
    )


def repeat(trials: int, spread: float, seed: int) -> Repetition:
    """One world drawn and searched both ways."""
    world, plan = World.draw(spread, seed), make_plan(trials, seed)
    return Repetition(world, search(plan, world.train), search(replace(plan, full_grid=True), world.train))


def compare_on_digits(trials: int) -> str:
    """A paragraph on the digits, really trained; what both searches ask for is trained once."""
    torch.set_num_threads(1)
    pipeline, known = load_pipeline("pipelines.digits"), dict[str, TrainingResult]()

    def train_once(job: Job) -> TrainingResult:
        key = f"{job.split} {job.recipe}"
        if key not in known:
            known[key] = train(pipeline, job.recipe, LocalContext(), split=job.split)
        return known[key]

    plan = SearchPlan(
        pipeline="pipelines.digits",
        pipeline_args={},
        reference=pipeline.reference,
        num_train_samples=pipeline.num_train_samples,
        optimizers=("adamw", "vr_adamw"),
        batch_sizes=default_ladder(pipeline, None),
        trials=trials,
        criterion=Criterion(margin=0.01, mode="max", paired=True),
        controls=False,
    )
    found, grid = (search(replace(plan, full_grid=whole), train_once, pipeline) for whole in (False, True))
    return (
        f"On the digits (batch sizes {plan.batch_sizes[0]} to {plan.batch_sizes[-1]}, margin a point, really trained): "
        f"the search claims {_pair(claims(found))} with adamw and vr_adamw, the grid {_pair(claims(grid))}, for "
        f"{100 * samples(found) / samples(grid):.0f} % of the grid's samples. The ladder is short, and most of it is "
        "near the limit.\n"
    )


def describe(found: dict[float, list[Repetition]], trials: int) -> str:
    """The page of results: a summary of every spread, and each repetition of the first."""
    first = next(iter(found.values()))
    names = ("samples of the search over the grid's, median", "smallest to largest", "same answer as the grid for both")
    columns = [_summary(repetitions) for repetitions in found.values()]
    summary = [" | ".join(row) for row in zip((*names, "true limits of both: search, grid"), *columns, strict=True)]
    head = " | ".join(["seed deviation", *(f"{spread:g} margins" for spread in found)])
    return "\n".join(
        [
            "# Cost of a search beside a full grid",
            "",
            _INTRODUCTION.format(repetitions=len(first), trials=trials),
            "",
            f"| {head} |",
            "|---" * (len(found) + 1) + "|",
            *(f"| {row} |" for row in summary),
            "",
            f"Each repetition with {next(iter(found)):g} margins, adamw before vr_adamw:",
            "",
            "| | true limits | noise scale | starts | search claims | grid claims | samples |",
            "|---|---|---|---|---|---|---|",
            *(_row(number, each) for number, each in enumerate(first, 1)),
            "",
        ]
    )


def _summary(found: list[Repetition]) -> list[str]:
    ratios = sorted(each.ratio for each in found)
    right_grid = sum(claims(each.grid) == each.world.limits for each in found)
    return [
        f"{100 * statistics.median(ratios):.0f} %",
        f"{100 * ratios[0]:.0f} % to {100 * ratios[-1]:.0f} %",
        f"{sum(each.same for each in found)} of {len(found)}",
        f"{sum(each.right for each in found)}, {right_grid} of {len(found)}",
    ]


def _row(number: int, each: Repetition) -> str:
    starts = {name: ladder.start for name, ladder in each.finder.ladders.items()}
    columns: list[Any] = [
        number,
        _pair(each.world.limits),
        f"{each.world.noise_scale:.0f}",
        _pair(starts),
        _pair(claims(each.finder)),
        _pair(claims(each.grid)),
        f"{100 * each.ratio:.0f} %",
    ]
    return f"| {' | '.join(map(str, columns))} |"


def _pair(values: Any) -> str:
    return ", ".join("none" if value is None else str(value) for value in values.values())


def main() -> None:
    """Parse, run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--digits", action="store_true", help="compare on really trained digits too")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/finder.md"))
    options = parser.parse_args()
    seeds = range(options.repetitions)
    found = {spread: [repeat(options.trials, spread, seed) for seed in seeds] for spread in SPREADS}
    page = describe(found, options.trials)
    if options.digits:
        page += "\n" + compare_on_digits(options.trials)
    print(page)
    options.output.write_text(page)


if __name__ == "__main__":
    main()
