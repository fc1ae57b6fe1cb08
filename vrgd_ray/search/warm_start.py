"""What a cell tries first: the best of its nearest tuned neighbour, its learning rate carried over by a scaling law."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import combinations
from typing import Any

from vrgd_ray.config import Recipe
from vrgd_ray.search.space import SpaceContext, uses

Law = Callable[[int, int], float]
"""Factor of the learning rate from one batch size to another."""

_NOT_CARRIED = ("optimizer", "batch_size", "lr", "epochs", "seed", "gsnr_control")
_GUESSES = 2


def scaling_laws(noise_scale: float | None) -> list[Law]:
    """Square root, linear, and where the noise scale (samples) is known lr_max/(1 + B_noise/B) (arXiv 1812.06162)."""
    laws: list[Law] = [lambda old, new: math.sqrt(new / old), lambda old, new: new / old]
    if noise_scale is not None:
        laws.append(lambda old, new: (1 + noise_scale / old) / (1 + noise_scale / new))
    return laws


def ranked_laws(tuned: Sequence[Recipe], laws: Sequence[Law]) -> list[Law]:
    """The laws by how well they predict the best learning rates from one another; as given without evidence.

    The error of a law is the mean over all pairs of tuned cells of |log(best rate / predicted rate)|.
    """
    pairs = [(a, b) for a, b in combinations(tuned, 2) if a.batch_size != b.batch_size]

    def error(law: Law) -> float:
        return sum(abs(math.log(b.lr / (a.lr * law(a.batch_size, b.batch_size)))) for a, b in pairs)

    return sorted(laws, key=error)


def first_guesses(
    context: SpaceContext, tuned: Sequence[Recipe] = (), noise_scale: float | None = None
) -> list[dict[str, Any]]:
    """Points a cell tries first, best guess first.

    Args:
        context: the cell.
        tuned: best recipes of the cells tuned before that count as neighbours: those of the same optimizer, and the
            reference's where it is of the same family. Without any, the reference recipe as the user gave it, or
            nothing where that is of another family.
        noise_scale: gradient noise scale in samples; None while unresolved.
    """
    own = [recipe for recipe in tuned if recipe.optimizer == context.optimizer]
    neighbours = own or list(tuned) or ([context.reference] if context.same_family else [])
    if not neighbours:
        return []
    nearest = min(neighbours, key=lambda recipe: abs(math.log(recipe.batch_size / context.batch_size)))
    names = [f.name for f in fields(Recipe) if f.name not in _NOT_CARRIED and uses(context.optimizer, f.name)]
    values = {name: getattr(nearest, name) for name in names}
    if nearest.batch_size == context.batch_size:
        return [{**values, "lr": nearest.lr}]
    laws = ranked_laws(tuned, scaling_laws(noise_scale))[:_GUESSES]
    return [{**values, "lr": nearest.lr * law(nearest.batch_size, context.batch_size)} for law in laws]
