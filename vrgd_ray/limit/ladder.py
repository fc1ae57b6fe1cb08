"""The climb of one optimizer over batch sizes: a propose/observe state machine without any training in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Claim = Literal["confirmed", "exploratory", "not tested"]


class Ladder:
    """Batch sizes in increasing order, tried one after the other.

    The claim is a fixed sequence: it grows while rungs are accepted and stops at the first that is not. A few rungs
    beyond that are still tried, since acceptance need not be monotone; they are shown, never claimed.
    """

    def __init__(self, batch_sizes: Sequence[int], rungs_beyond: int = 1) -> None:
        self.batch_sizes = sorted(batch_sizes)
        self.rungs_beyond = rungs_beyond
        self.accepted: dict[int, bool] = {}

    def propose(self) -> int | None:
        """The rung to try now; None when the climb is over."""
        tried = len(self.accepted)
        if tried == len(self.batch_sizes):
            return None
        failure = self._first_failure()
        if failure is not None and tried > failure + self.rungs_beyond:
            return None
        return self.batch_sizes[tried]

    def observe(self, batch_size: int, accepted: bool) -> None:
        """Take the outcome of the proposed rung.

        Raises:
            ValueError: another rung was proposed.
        """
        if batch_size != self.propose():
            raise ValueError(f"rung {batch_size} observed while {self.propose()} was proposed")
        self.accepted[batch_size] = accepted

    def claim(self, batch_size: int) -> Claim:
        """What may be said of a rung: accepted in sequence, tried without that, or not tried."""
        if batch_size not in self.accepted:
            return "not tested"
        failure = self._first_failure()
        within = failure is None or self.batch_sizes.index(batch_size) < failure
        return "confirmed" if within else "exploratory"

    @property
    def largest(self) -> int | None:
        """Largest batch size of the claim; None when the first rung already failed."""
        return max((b for b in self.accepted if self.claim(b) == "confirmed"), default=None)

    def _first_failure(self) -> int | None:
        outcomes = list(self.accepted.values())
        return outcomes.index(False) if False in outcomes else None
