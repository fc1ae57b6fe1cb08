"""Which of the searched hyper-parameters mattered: Optuna's functional ANOVA over all trials of one optimizer."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from vrgd_ray.search.space import LOG_RATIO

FEWEST_TRIALS = 8
"""Trials below which no importance is computed: a forest of regression trees needs something to split."""

Trials = Sequence[tuple[Mapping[str, Any], float]]
"""Searched values of each trial, and its score; larger is better."""


def importances(trials: Trials) -> dict[str, float]:
    """Share of the variance of the score that each searched field explains, largest first; the shares sum to 1.

    Fields that never varied are left out. Empty where trials are too few, or all scored the same. With few trials this
    is a hint: noise is shared out among the fields as well.
    """
    names = _varied([values for values, _ in trials])
    if len(trials) < FEWEST_TRIALS or not names or len({score for _, score in trials}) < 2:
        return {}
    optuna.logging.set_verbosity(logging.WARNING)
    study = optuna.create_study(direction="maximize")
    spaces = {name: _distribution([values[name] for values, _ in trials]) for name in names}
    for values, score in trials:
        params = {name: values[name] for name in names}
        study.add_trial(optuna.create_trial(params=params, distributions=spaces, value=score))
    # Shallow trees: the cost of full ones grows with the square of the trials (29 s for 1,000), the answer hardly does.
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=32, max_depth=6, seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}


def ranks(
    metrics: Sequence[float | None], mode: str, pruned: Mapping[int, tuple[int, float]] | None = None
) -> list[float]:
    """Scores that are comparable between cells: 1 for a cell's best metric, 0 for its worst, equals share theirs.

    None, a trial that diverged or broke, ranks last. pruned: number of a trial that was stopped early -> samples it had
    seen and its metric there; such trials rank behind every complete one, by how far they came and then by that metric.
    """
    sign, stopped = (1.0 if mode == "max" else -1.0), pruned or {}

    def rank(index: int, metric: float | None) -> tuple[float, float]:
        if metric is not None:
            return math.inf, sign * metric
        samples, value = stopped.get(index, (-1, 0.0))
        return samples, sign * value

    goodness = [rank(index, metric) for index, metric in enumerate(metrics)]
    below = [sum(other < own for other in goodness) for own in goodness]
    equal = [sum(other == own for other in goodness) - 1 for own in goodness]
    last = max(1, len(metrics) - 1)
    return [(lower + same / 2) / last for lower, same in zip(below, equal, strict=True)]


def _varied(values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fields that every trial has, and that are not the same in all of them."""
    shared = [name for name in (values[0] if values else {}) if all(name in other for other in values)]
    return [name for name in shared if len({str(other[name]) for other in values}) > 1]


def _distribution(values: Sequence[Any]) -> BaseDistribution:
    """The range the values span, on a logarithmic scale where it is wide; choices where they are no numbers."""
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return CategoricalDistribution(list({str(value): value for value in values}.values()))
    low, high = float(min(values)), float(max(values))
    return FloatDistribution(low, high, log=low > 0 and high / low >= LOG_RATIO)
