"""A comparison in progress: an arm against the reference, look by look."""

from __future__ import annotations

from vrgd_ray.limit.arm import Arm
from vrgd_ray.limit.criterion import Comparison, Criterion, Verdict, compare


class Contest:
    """An arm against the reference arm: which look it is at, and how it was decided."""

    def __init__(self, arm: Arm, criterion: Criterion) -> None:
        self.arm, self.criterion = arm, criterion
        self._look = 0
        self.comparison: Comparison | None = None
        self.verdict: Verdict | None = None
        self.reason: str | None = None

    @property
    def seeds_wanted(self) -> int:
        """Seeds both arms need for the look at hand."""
        return self.criterion.looks[self._look]

    def judge(self, reference: Arm) -> None:
        """Decide if the look's seeds are all there; an inconclusive first look asks for the second."""
        if self.verdict is not None:
            return
        if self.arm.failed is not None:
            self.verdict, self.reason = "reject", self.arm.failed.error or "a seed diverged"
            self.comparison = None  # of the look before, which did not decide
            return
        mine, theirs = self.arm.values(self.seeds_wanted), reference.values(self.seeds_wanted)
        if mine is None or theirs is None:
            return
        self.comparison = compare(mine, theirs, self.criterion)
        if self.comparison.verdict == "inconclusive" and self._look + 1 < len(self.criterion.looks):
            self._look += 1
            self.judge(reference)
        else:
            self.verdict = self.comparison.verdict
