"""A trial that is trained with a guess, and that records no other values than the guess's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vrgd_ray.search.space import Override, Suggester


class GuessingTrial:
    """Answers with the guess where that lies outside what is asked for, and asks the wrapped trial for all else.

    The wrapped trial, to which values of the guess that lie inside are known, so records what is trained or, of a value
    it has no place for, nothing: any other would earn the credit of one that nobody trained.
    """

    def __init__(self, trial: Suggester, guess: Mapping[str, Any]) -> None:
        self.trial, self.guess = trial, guess

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """As the wrapped trial, unless the guess lies outside."""
        if self._outside(name, Override(low=low, high=high)):
            guess: float = self.guess[name]
            return guess
        return self.trial.suggest_float(name, low, high, log=log)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """As the wrapped trial, unless the guess lies outside."""
        if self._outside(name, Override(low=low, high=high)):
            guess: int = self.guess[name]
            return guess
        return self.trial.suggest_int(name, low, high, log=log)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """As the wrapped trial, unless the guess lies outside."""
        if self._outside(name, Override(choices=tuple(choices))):
            return self.guess[name]
        return self.trial.suggest_categorical(name, choices)

    def _outside(self, name: str, asked: Override) -> bool:
        return name in self.guess and not asked.contains(self.guess[name])
