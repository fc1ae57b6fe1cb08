"""One candidate cell on its way: tuned, then confirmed on fresh seeds, then decided."""

from __future__ import annotations

from collections.abc import Callable

from vrgd_ray.config import Recipe
from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class CellRun:
    """One candidate cell: tuning, then a contest with the reference."""

    def __init__(self, tuning: CellTuning, open_contest: Callable[[Cell, Recipe], Contest]) -> None:
        self.tuning, self._open_contest = tuning, open_contest
        self.contest: Contest | None = None

    @property
    def cell(self) -> Cell:
        """The place of the grid."""
        return self.tuning.cell

    def next_job(self) -> Job | None:
        """The next trial or seed of this cell."""
        if self.contest is not None:
            return self.contest.arm.next_job(self.contest.seeds_wanted) if self.verdict is None else None
        return self.tuning.next_job()

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of one of this cell's jobs."""
        if job.role == "search":
            self.tuning.observe(job, result)
            recipe = self.tuning.best_recipe
            if recipe is not None:
                self.contest = self._open_contest(self.cell, recipe)
        elif self.contest is not None:
            self.contest.arm.observe(job, result)

    @property
    def verdict(self) -> Verdict | None:
        """The outcome; None while undecided."""
        if self.tuning.failure is not None:
            return "reject"
        return self.contest.verdict if self.contest is not None else None

    @property
    def reason(self) -> str | None:
        """Why the cell was rejected without a comparison; None otherwise."""
        return self.tuning.failure or (self.contest.reason if self.contest is not None else None)
