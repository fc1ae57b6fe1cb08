"""The plan of a search: everything fixed before the first run. Validated whole, so that nothing fails an hour later."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vrgd_ray.config import Recipe, check_batch_groups, nearest, require
from vrgd_ray.limit.bisection import RUNGS_ONLY, Bisection
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.optim.registry import base_of, names
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.search.job import Cell
from vrgd_ray.search.space import Override, SpaceContext, describe, load_space, parse_overrides, uses
from vrgd_ray.training.budget import count_steps

_SEED_STRIDE = 1000
_CONFIRM_OFFSET = 100
_CONTROL_OFFSET = 500
_MAX_SEEDS = 200


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """What will be searched, and how the verdict will be reached.

    Raises:
        ConfigError: a value is out of range or does not fit the pipeline; the message names it.
    """

    pipeline: str
    """Name the pipeline loads by."""
    pipeline_args: dict[str, Any]
    """Arguments of its constructor."""
    reference: Recipe
    """The recipe known to work at a small batch; the base optimizer."""
    num_train_samples: int
    """Size of the training set."""
    optimizers: tuple[str, ...]
    """Optimizers to compare, each climbing the ladder on its own."""
    batch_sizes: tuple[int, ...]
    """The ladder of global batch sizes, increasing; its first rung is the reference's batch."""
    trials: int = 8
    """Trials in every cell, the reference's included."""
    seeds: int = 5
    """Seeds per arm at the first look; twice as many at the second."""
    criterion: Criterion
    """Margin, direction and the overall alpha."""
    seed: int = 0
    """Seed of the search: suggestions, tuning seed, confirmation seeds."""
    settings: tuple[str, ...] = ()
    """Overrides of the search spaces, as given to --set."""
    prune: bool = True
    """Whether trials that fall behind are stopped early."""
    width: int = 1
    """Trials of a cell suggested ahead of their predecessors' results."""
    resolution: float = RUNGS_ONLY
    """Ratio of batch sizes down to which the limit is bracketed; 2 tries the rungs only."""
    controls: bool = True
    """Whether a VR optimizer that wins is trained again with scales that know nothing."""
    warm_start: bool = True
    """Whether a cell first tries what did best in its neighbours; else each starts from the reference recipe alone."""
    full_grid: bool = False
    """Whether every rung is trained, from the smallest, whatever the verdicts; the claim ends where it would have."""

    data_fingerprint: str | None = None
    """Of the data as the process that starts the search reads it; None where that cannot be told."""

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_optimizers()
        require(
            any(self.rungs(optimizer) for optimizer in self.optimizers),
            f"there is nothing to search: {self.reference.optimizer} at batch {self.reference.batch_size} is the "
            "reference itself; add a larger batch size or another optimizer.",
        )
        require(bool(self.group_counts), "--set num_groups takes a value or a list of values, not a range.")
        for batch_size in self.batch_sizes:
            for num_groups in self.group_counts:
                check_batch_groups(batch_size, num_groups)
            count_steps(self.reference.with_values(batch_size=batch_size), self.num_train_samples)

    def _check_numbers(self) -> None:
        require(self.trials >= 1, f"trials = {self.trials} must be at least 1.")
        require(2 <= self.seeds <= _MAX_SEEDS, f"seeds = {self.seeds} must be between 2 and {_MAX_SEEDS}.")
        require(self.seed >= 0, f"seed = {self.seed} must be at least 0.")
        require(self.width >= 1, f"concurrent_trials = {self.width} must be at least 1.")
        require(bool(self.batch_sizes), "batch_sizes is empty.")
        Bisection(resolution=self.resolution)

    def _check_optimizers(self) -> None:
        valid = list(names())
        require(bool(self.optimizers), "optimizers is empty.")
        for name in (*self.optimizers, self.reference.optimizer):
            require(name in valid, f"unknown optimizer {name!r}: {nearest(name, valid)}")
        require(
            base_of(self.reference.optimizer) == self.reference.optimizer,
            f"the pipeline's reference uses {self.reference.optimizer}; the reference must be a base optimizer, "
            f"as {base_of(self.reference.optimizer)}.",
        )

    @property
    def group_counts(self) -> tuple[int, ...]:
        """Every num_groups that a trial may have."""
        overrides = parse_overrides(self.settings)
        return overrides["num_groups"].choices if "num_groups" in overrides else (self.reference.num_groups,)

    @property
    def bisection(self) -> Bisection:
        """How a bracket of batch sizes is refined."""
        return Bisection(resolution=self.resolution, unit=math.lcm(*self.group_counts))

    @property
    def reference_cell(self) -> Cell:
        """The cell everything is compared with."""
        return Cell(self.reference.batch_size, self.reference.optimizer)

    def rungs(self, optimizer: str) -> list[int]:
        """Batch sizes an optimizer climbs; the reference's own cell is no candidate."""
        return [b for b in self.batch_sizes if Cell(b, optimizer) != self.reference_cell]

    def cells(self) -> Iterator[Cell]:
        """Every candidate cell of the grid."""
        return (Cell(b, optimizer) for optimizer in self.optimizers for b in self.rungs(optimizer))

    @property
    def tuning_seed(self) -> int:
        """Seed of every trial; one seed for all, so that configurations differ by nothing else."""
        return self.seed * _SEED_STRIDE

    def confirmation_seed(self, index: int, *, control: bool = False) -> int:
        """Fresh seed of a confirmation run; the control draws from seeds of its own."""
        return self.seed * _SEED_STRIDE + (_CONTROL_OFFSET if control else _CONFIRM_OFFSET) + index

    def to_dict(self) -> dict[str, Any]:
        """Plain dict for the ledger; two plans are the same search where these are equal."""
        return asdict(self)


def searched_fields(plan: SearchPlan, pipeline: Pipeline) -> dict[Cell, dict[str, Override]]:
    """What will be searched in every cell, field by field; checked whole, so that no trial fails an hour later.

    Raises:
        ConfigError: a setting that no optimizer of the search uses, or ranges that could cross.
    """
    overrides = parse_overrides(plan.settings)
    cells = {plan.reference_cell, *plan.cells()}
    for name in overrides:
        used = any(uses(cell.optimizer, name) for cell in cells)
        require(used, f"--set {name}: none of {', '.join(sorted({c.optimizer for c in cells}))} uses {name}.")
    return {
        cell: describe(load_space(cell.optimizer, pipeline), space_context(plan, cell), overrides)
        for cell in sorted(cells)
    }


def space_context(plan: SearchPlan, cell: Cell) -> SpaceContext:
    """What the space of a cell may depend on."""
    return SpaceContext(batch_size=cell.batch_size, optimizer=cell.optimizer, reference=plan.reference)


def default_ladder(pipeline: Pipeline, max_batch_size: int | None) -> tuple[int, ...]:
    """Doublings of the reference batch up to `max_batch_size`, or half of the training set."""
    reference = pipeline.reference.batch_size
    top = pipeline.num_train_samples // 2 if max_batch_size is None else max_batch_size
    require(
        top >= reference,
        f"max_batch_size = {top} is below the reference batch {reference}; there is nothing to climb.",
    )
    ladder = [reference]
    while ladder[-1] * 2 <= top:
        ladder.append(ladder[-1] * 2)
    return tuple(ladder)


def checked_ladder(batch_sizes: Sequence[int], reference: int) -> tuple[int, ...]:
    """The user's batch sizes in order, the reference's first; below it there is nothing to find."""
    require(bool(batch_sizes), "batch_sizes is empty; name at least one, or leave the flag out.")
    smaller = [b for b in batch_sizes if b < reference]
    require(not smaller, f"batch_sizes {smaller} are below the reference batch {reference}, the smallest rung.")
    return tuple(sorted({reference, *batch_sizes}))
