"""One cell's Optuna study: suggestions that depend on results in trial order, not on who finished first."""

from __future__ import annotations

import logging
import math
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import optuna

from vrgd_ray.search.guessing_trial import GuessingTrial
from vrgd_ray.search.space import Override, SearchSpace, SpaceContext, suggest

_RANDOM_TRIALS = 4
"""Trials before the sampler models the results; few, since a cell has few."""


class CellStudy:
    """The tuning of one (batch size, optimizer) cell.

    Trial i is suggested from the results of the trials before i - `width` + 1, whatever else has finished by then. So
    for one seed and one width the same results lead to the same suggestions, on any machine and after any restart.
    """

    def __init__(
        self,
        space: SearchSpace,
        context: SpaceContext,
        *,
        mode: str,
        num_trials: int,
        width: int,
        seed: int,
        overrides: Mapping[str, Override] | None = None,
        first: Sequence[dict[str, Any]] = (),
    ) -> None:
        optuna.logging.set_verbosity(logging.WARNING)
        self.space, self.context, self.overrides = space, context, dict(overrides or {})
        self.mode, self.num_trials, self.width = mode, num_trials, max(1, width)
        self._study = _create_study(mode, zlib.crc32(f"{seed}/{context.optimizer}/{context.batch_size}".encode()))
        self._first = [self._within_overrides(values) for values in first]
        for values in self._first:
            self._study.enqueue_trial(values)
        self._trials: list[optuna.trial.Trial] = []
        self._told = 0
        self.suggestions: list[dict[str, Any]] = []
        self.results: dict[int, float | None] = {}
        self.pruned: dict[int, tuple[int, float]] = {}

    def ask(self) -> dict[str, Any] | None:
        """Values of the next trial; None while it must wait for results or all are out."""
        index = len(self._trials)
        due = max(0, index - self.width + 1)
        if index == self.num_trials or any(i not in self.results for i in range(due)):
            return None
        while self._told < due:
            self._tell_sampler(self._told)
            self._told += 1
        trial = self._study.ask()
        self._trials.append(trial)
        guess = self._first[index] if index < len(self._first) else {}
        # The guess is trained to the letter, also where it lies outside the space (a weight decay of 0, say).
        drawn = suggest(self.space, GuessingTrial(trial, guess), self.context, self.overrides)
        self.suggestions.append({**drawn, **guess})
        return self.suggestions[-1]

    def tell(self, index: int, value: float | None) -> None:
        """Take the metric of a trial; None for one that diverged, which counts as the worst result."""
        self.results[index] = value

    def tell_pruned(self, index: int, samples: int, value: float) -> None:
        """Take a trial that was stopped after so many samples with that metric; it is never the best."""
        self.results[index], self.pruned[index] = None, (samples, value)

    @property
    def finished(self) -> bool:
        """Whether every trial has its result."""
        return len(self.results) == self.num_trials

    @property
    def diverged(self) -> int:
        """Trials without a finite metric."""
        return sum(value is None for value in self.results.values()) - len(self.pruned)

    @property
    def best(self) -> tuple[int, float] | None:
        """Number and metric of the best trial, the earliest of equals; None while none has a metric."""
        sign = 1.0 if self.mode == "max" else -1.0
        scored = [(-sign * value, index) for index, value in self.results.items() if value is not None]
        return (min(scored)[1], -sign * min(scored)[0]) if scored else None

    def _within_overrides(self, values: dict[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in values.items() if n not in self.overrides or self.overrides[n].contains(v)}

    def _tell_sampler(self, index: int) -> None:
        trial = self._trials[index]
        if index in self.pruned:  # ranked behind every complete trial, by how far it came and then by its metric
            samples, value = self.pruned[index]
            trial.report(value, samples)
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(trial, self._score(self.results[index]))

    def _score(self, value: float | None) -> float:
        worst = -math.inf if self.mode == "max" else math.inf
        return worst if value is None else value


def _create_study(mode: str, seed: int) -> optuna.Study:
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS, multivariate=True, group=True)
    return optuna.create_study(direction="maximize" if mode == "max" else "minimize", sampler=sampler)
