"""Why a VR optimizer won: its cell again with a scale that does not know which elements are noisy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from vrgd_ray.limit.arm import Arm
from vrgd_ray.limit.criterion import Comparison, Criterion, compare
from vrgd_ray.search.job import Job, Role
from vrgd_ray.training.result import TrainingResult

CONTROLS: tuple[Role, ...] = ("constant", "shuffled")
Finding = Literal["better", "equal", "unclear", "diverged", "not tested"]


class ScaleControls:
    """The winning arm trained again on the same seeds with the layer's mean scale, and with a shuffled one.

    Neither enters the verdict; they say where a gain comes from (docs/method.md, "Where a gain comes from").

    winner: the confirmation arm of the winning VR cell. num_seeds: seeds it was decided on. criterion: direction,
    pairing, margin in units of the metric, and as alpha the level of either side of the intervals.
    """

    def __init__(self, winner: Arm, num_seeds: int, criterion: Criterion) -> None:
        self.winner, self.num_seeds, self.criterion = winner, num_seeds, criterion
        self.arms = {role: self._arm(role) for role in CONTROLS}

    def proposals(self) -> Iterator[Job | None]:
        """The next seed of either control."""
        return (arm.next_job(self.num_seeds) for arm in self.arms.values())

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of a control's seed."""
        self.arms[job.role].observe(job, result)

    @property
    def finished(self) -> bool:
        """Whether every seed has its result."""
        return all(len(arm.results) == self.num_seeds for arm in self.arms.values())

    def comparison(self, role: Role) -> Comparison | None:
        """The VR arm against a control, positive where VR is better; None while seeds are missing or diverged."""
        mine, theirs = self.winner.values(self.num_seeds), self.arms[role].values(self.num_seeds)
        return compare(mine, theirs, self.criterion) if mine and theirs else None

    def finding(self, role: Role) -> Finding:
        """better: VR beats the control; equal: by less than the margin, if at all; unclear: neither is shown.

        diverged: a seed of the control did; not tested: seeds are missing, or an error broke one.
        """
        if self.arms[role].diverged:
            return "diverged"
        comparison = self.comparison(role)
        if comparison is None:
            return "not tested"
        if comparison.lower > 0:
            return "better"
        return "equal" if comparison.upper < self.criterion.margin else "unclear"

    def _arm(self, role: Role) -> Arm:
        arm = self.winner
        return Arm(arm.cell, role, arm.recipe.with_values(gsnr_control=role), arm.seed_of, arm.metric)
