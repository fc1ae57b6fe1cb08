"""The way of one optimizer over batch sizes: a propose/observe state machine without any training in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vrgd_ray.limit.bisection import Bisection

Claim = Literal["confirmed", "exploratory", "not tested"]

FEWEST_BELOW = 2
"""Rungs that must lie below a predicted start; with fewer the climb from the bottom costs less than the split level."""
REFINEMENT_SHARE = 0.25
"""Share of the level that is set aside for bisection where a resolution is asked for."""


class Ladder:
    """Batch sizes tried one after the other, each at its share of the optimizer's level.

    From `start` upward the claim is a fixed sequence: it grows while rungs are accepted and stops at the first that is
    not. Only if the start itself is not accepted, the rungs below are tried downward until one is. The bracket this
    leaves is bisected. Last, a few rungs beyond the first failure of the climb are tried, since acceptance need not be
    monotone; they are shown, never claimed.

    batch_sizes: the rungs, in any order. start: the rung to start from, the smallest by default. floor: a batch below
    all rungs that needs no test, the reference's, for its own optimizer. bisection: how far to refine.
    """

    def __init__(
        self,
        batch_sizes: Sequence[int],
        rungs_beyond: int = 1,
        *,
        start: int | None = None,
        floor: int | None = None,
        bisection: Bisection | None = None,
    ) -> None:
        self.batch_sizes = sorted(batch_sizes)
        self.rungs_beyond = rungs_beyond
        self.bisection = bisection or Bisection()
        self.floor = floor
        first = 0 if start is None else self.batch_sizes.index(start)
        self.upward, self.downward = self.batch_sizes[first:], self.batch_sizes[:first][::-1]
        self.accepted: dict[int, bool] = {}

    def propose(self) -> int | None:
        """The batch size to try now; None when nothing is left to try."""
        phases = (self._climb, self._descend, self._bisect, self._explore)
        return next((found for phase in phases if (found := phase()) is not None), None)

    def observe(self, batch_size: int, accepted: bool) -> None:
        """Take the outcome of the proposed batch size.

        Raises:
            ValueError: another one was proposed.
        """
        if batch_size != self.propose():
            raise ValueError(f"rung {batch_size} observed while {self.propose()} was proposed")
        self.accepted[batch_size] = accepted

    def share(self, batch_size: int) -> float:
        """Share of the optimizer's level that a test at this batch size has; fixed before any test.

        The shares of all tests that could bring about a wrong claim add up to 1, the climb's fixed sequence counting
        once.
        """
        tests = self.bisection.most_tests(self._brackets())
        rungs = 1.0 - REFINEMENT_SHARE if tests else 1.0
        if batch_size not in self.batch_sizes:
            return REFINEMENT_SHARE / tests
        if not self.downward:
            return rungs
        return rungs / 2 if batch_size in self.upward else rungs / 2 / len(self.downward)

    def claim(self, batch_size: int) -> Claim:
        """What may be said of a batch size: accepted where it counts, tried without that, or not tried."""
        if batch_size not in self.accepted:
            return "not tested"
        counts = self.accepted[batch_size] and batch_size not in self._beyond()
        return "confirmed" if counts else "exploratory"

    @property
    def start(self) -> int | None:
        """The rung tried first; None where there are no rungs."""
        return self.upward[0] if self.upward else None

    @property
    def largest(self) -> int | None:
        """Largest batch size of the claim; None while nothing is accepted."""
        return max((b for b in self.accepted if self.claim(b) == "confirmed"), default=None)

    def may_come(self, batch_size: int) -> bool:
        """Whether a rung may still be proposed: not when all is tried, nor below a start that has not failed."""
        if batch_size in self.accepted or self.propose() is None:
            return False
        return batch_size in self.upward or self.accepted.get(self.upward[0]) is False

    def _climb(self) -> int | None:
        failure = self._first_failure()
        return next((b for b in self.upward if b not in self.accepted), None) if failure is None else None

    def _descend(self) -> int | None:
        if self._first_failure() != 0 or any(self.accepted.get(b) for b in self.downward):
            return None
        return next((b for b in self.downward if b not in self.accepted), None)

    def _bisect(self) -> int | None:
        low = self.largest or self.floor
        if low is None:
            return None
        failed = [b for b, accepted in self.accepted.items() if not accepted and b > low]
        return self.bisection.between(low, min(failed)) if failed else None

    def _explore(self) -> int | None:
        return next((b for b in self._beyond() if b not in self.accepted), None)

    def _beyond(self) -> list[int]:
        failure = self._first_failure()
        return [] if failure is None else self.upward[failure + 1 : failure + 1 + self.rungs_beyond]

    def _brackets(self) -> list[int]:
        return self.batch_sizes if self.floor is None else [self.floor, *self.batch_sizes]

    def _first_failure(self) -> int | None:
        """Place in `upward` of the first rung that was not accepted."""
        return next((i for i, b in enumerate(self.upward) if self.accepted.get(b) is False), None)


def predicted_start(batch_sizes: Sequence[int], noise_scale: float | None) -> int | None:
    """The rung nearest, by its ratio, to the gradient noise scale (samples); None to start at the bottom.

    None where the noise scale is not resolved or not above zero, as of groups whose gradients are all the same, and
    where fewer than `FEWEST_BELOW` rungs lie below.
    """
    rungs = sorted(batch_sizes)
    if noise_scale is None or not 0.0 < noise_scale < math.inf or not rungs:
        return None
    place = min(range(len(rungs)), key=lambda i: abs(math.log(rungs[i] / noise_scale)))
    return rungs[place] if place >= FEWEST_BELOW else None
