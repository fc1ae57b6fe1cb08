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
        self.errors: dict[int, str] = {}
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
            self.errors[job.index] = result.error

    @property
    def failure(self) -> str | None:
        """Why no trial of the finished tuning can be used; None where one can."""
        if not self.study.finished or self.study.best is not None:
            return None
        return _told(self.study.num_trials, self.diverged, list(self.errors.values()), len(self.study.pruned))

    @property
    def diverged(self) -> int:
        """Trials that diverged, those that an error broke left out."""
        return self.study.diverged - len(self.errors)

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


def _told(trials: int, diverged: int, errors: list[str], pruned: int) -> str:
    """What became of trials none of which came to its end, cause by cause; the report reads it too."""
    causes = {
        "diverged": diverged,
        f"{'was' if pruned == 1 else 'were'} stopped early (--no-prune trains them to their end)": pruned,
        f"failed: {errors[0] if errors else ''}": len(errors),
    }
    found = [(number, what) for what, number in causes.items() if number]
    if len(found) == 1:
        return f"all {trials} trials {found[0][1]}"
    return f"of {trials} trials, {' and '.join(f'{number} {what}' for number, what in found)}"
