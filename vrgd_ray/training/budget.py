"""How long a run is, and whether it fits data and workers: known before anything starts."""

from __future__ import annotations

import math
from fractions import Fraction

from vrgd_ray.config import Recipe, require
from vrgd_ray.optim.registry import hyperparameters
from vrgd_ray.schedules import create_schedule
from vrgd_ray.training.batch_plan import BatchPlan


def count_steps(recipe: Recipe, num_train_samples: int) -> int:
    """Optimizer steps of a run: floor(epochs * N / B), the same samples for every batch up to that rounding.

    Raises:
        ConfigError: the batch exceeds the training set, or not a single step fits.
    """
    require(
        recipe.batch_size <= num_train_samples,
        f"batch_size = {recipe.batch_size} is above the {num_train_samples} training samples.",
    )
    epochs = Fraction(str(recipe.epochs))  # exact, so that 0.29 of 800 samples are 232 and not one less
    steps = math.floor(epochs * num_train_samples / recipe.batch_size)
    require(
        steps >= 1,
        f"epochs = {recipe.epochs:g} of {num_train_samples} samples are less than one step of batch_size = "
        f"{recipe.batch_size}; use more epochs.",
    )
    return steps


def check_fits(recipe: Recipe, num_train_samples: int, num_workers: int) -> None:
    """Refuse, before anything starts, a recipe that does not fit the data or the number of workers.

    Raises:
        ConfigError: naming the value and the nearest that would do.
    """
    count_steps(recipe, num_train_samples)
    create_schedule(recipe.schedule)
    hyperparameters(recipe.optimizer)
    BatchPlan(batch_size=recipe.batch_size, num_groups=recipe.num_groups, world_size=num_workers)
