"""Pipelines of the package under another reference recipe, and under a scaling rule instead of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vrgd_ray import Recipe, SpaceContext, Suggester
from vrgd_ray.pipeline import Pipeline, load_pipeline


class SquareRootScaling:
    """A search space of one point: the small batch's learning rate times the square root of the ratio of batches.

    reference: recipe of the small batch; all its other values are kept (arXiv 2309.13681, section 6).
    """

    def __init__(self, reference: Recipe) -> None:
        self._reference = reference

    def suggest(self, trial: Suggester, context: SpaceContext) -> dict[str, Any]:
        """The scaled learning rate; nothing is drawn."""
        return {"lr": self._reference.lr * math.sqrt(context.batch_ratio)}


def workload(pipeline: str, reference: Mapping[str, Any], scaled: bool = False, **arguments: Any) -> Pipeline:
    """The named pipeline, built with `arguments`, with these values in its reference recipe.

    scaled: whether the learning rate follows the square root of the batch instead of a search.
    """
    made: Any = load_pipeline(pipeline, arguments)
    made.reference = made.reference.with_values(**reference)
    if scaled:
        made.search_space = SquareRootScaling(made.reference)
    found: Pipeline = made
    return found
