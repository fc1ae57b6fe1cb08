"""One arm of a comparison: a recipe trained on fresh seeds."""

from __future__ import annotations

from collections.abc import Callable

from vrgd_ray.config import Recipe
from vrgd_ray.search.job import Cell, Job, Role
from vrgd_ray.training.result import TrainingResult


class Arm:
    """Seeds of one recipe: which to train next, and what they gave."""

    def __init__(self, cell: Cell, role: Role, recipe: Recipe, seed_of: Callable[[int], int], metric: str) -> None:
        self.cell, self.role, self.recipe, self.seed_of, self.metric = cell, role, recipe, seed_of, metric
        self.results: dict[int, TrainingResult] = {}
        self._asked = 0

    def next_job(self, num_seeds: int) -> Job | None:
        """The next seed, until `num_seeds` are out."""
        if self._asked >= num_seeds:
            return None
        index = self._asked
        self._asked += 1
        recipe = self.recipe.with_values(seed=self.seed_of(index))
        return Job(cell=self.cell, role=self.role, index=index, recipe=recipe)

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of a seed."""
        self.results[job.index] = result

    def values(self, num_seeds: int) -> list[float] | None:
        """Metrics of the first `num_seeds` seeds in order; None while one is missing or diverged."""
        known = [self.results.get(index) for index in range(num_seeds)]
        if any(result is None or result.diverged for result in known):
            return None
        return [result.metrics[self.metric] for result in known if result is not None]

    @property
    def diverged(self) -> bool:
        """Whether a seed diverged by itself; one that an error broke says nothing of the recipe."""
        return any(result.diverged and result.error is None for result in self.results.values())

    @property
    def failed(self) -> TrainingResult | None:
        """A seed that diverged or broke; None while all are well."""
        return next((result for result in self.results.values() if result.diverged), None)
