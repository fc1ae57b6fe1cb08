"""The tuning of one cell."""

from __future__ import annotations

from vrgd_ray.config import Recipe
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class CellTuning:
    """The tuning of one cell: its study's suggestions as jobs, its best trial as a recipe."""

    def __init__(self, cell: Cell, study: CellStudy, base: Recipe, metric: str) -> None:
        self.cell, self.study, self.base, self.metric = cell, study, base, metric
        self.errors: list[str] = []
        self._noise_scales: dict[int, float | None] = {}

    def next_job(self) -> Job | None:
        """The next trial; None while the study waits for results or all are out."""
        values = self.study.ask()
        if values is None:
            return None
        recipe = self.base.with_values(**values)
        return Job(cell=self.cell, role="search", index=len(self.study.suggestions) - 1, recipe=recipe)

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of a trial."""
        if result.pruned:
            self.study.tell_pruned(job.index, result.samples, result.metrics[self.metric])
        else:
            self.study.tell(job.index, None if result.diverged else result.metrics[self.metric])
        self._noise_scales[job.index] = result.noise_scale
        if result.error:
            self.errors.append(result.error)

    @property
    def failure(self) -> str | None:
        """Why no trial of the finished tuning can be used; None where one can."""
        if not self.study.finished or self.study.best is not None:
            return None
        return f"all {self.study.num_trials} trials failed" + (f": {self.errors[0]}" if self.errors else " (diverged)")

    @property
    def best_recipe(self) -> Recipe | None:
        """Recipe of the best trial once all have finished."""
        if not self.study.finished or self.study.best is None:
            return None
        return self.base.with_values(**self.study.suggestions[self.study.best[0]])

    @property
    def noise_scale(self) -> float | None:
        """Gradient noise scale of the best trial, samples; None while there is none or it is not resolved."""
        return self._noise_scales[self.study.best[0]] if self.best_recipe is not None and self.study.best else None
