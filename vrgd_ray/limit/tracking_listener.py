"""Tells a tracker what the finder does."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job, Role
from vrgd_ray.tracking.tracker import GroupRecord, Tracker
from vrgd_ray.training.record import training_record
from vrgd_ray.training.result import TrainingResult

_JUDGED: tuple[Role, ...] = ("search", "confirm", "control")
"""Runs that a verdict is about; that of the control is not about the reference's runs, nor that of a cell about the
same cell with another scale."""
ContestOf = Callable[[Cell, bool], Contest | None]


class TrackingListener:
    """Logs every cell as a group and every finished job as a run in it, and tags both with the verdict on them."""

    def __init__(self, tracker: Tracker, contest_of: ContestOf) -> None:
        """Take the tracker, and a function from (cell, whether the control is meant) to how it was decided."""
        self.tracker, self.contest_of = tracker, contest_of
        self._keys: dict[tuple[Cell, bool], list[str]] = {}
        self._verdicts: dict[tuple[Cell, bool], Verdict] = {}
        self._groups: set[Cell] = set()

    def job_started(self, job: Job) -> None:
        """Open its cell; the run itself is logged whole when it has finished, so that no kill leaves one running."""
        self._open(job.cell)

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """Log the run; one that is there already is left alone."""
        self._open(job.cell)
        tags = {**_tags(job.cell), "role": job.role}
        name = f"{_name(job.cell)} {job.role} {job.index}"
        self.tracker.log_run(
            training_record(
                key=job.key, name=name, tags=tags, recipe=job.recipe, result=result, group=_group_key(job.cell)
            )
        )
        if job.role in _JUDGED:
            self._tag(job)

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """Close the cell with what decided it, and tag its runs."""
        tags: dict[str, str] = {"control_verdict" if control else "verdict": verdict}
        self._log_group(cell, tags=tags, status="FINISHED", **_decision(self.contest_of(cell, control), control))
        self._verdicts[cell, control] = verdict
        self.tracker.tag_runs(self._keys.get((cell, control), []), {"verdict": verdict})

    def _tag(self, job: Job) -> None:
        """Tag a run with its verdict, at once where that fell while the run was still out."""
        decided = job.cell, job.role == "control"
        self._keys.setdefault(decided, []).append(job.key)
        if decided in self._verdicts:
            self.tracker.tag_runs([job.key], {"verdict": self._verdicts[decided]})

    def _open(self, cell: Cell) -> None:
        if cell not in self._groups:
            self._groups.add(cell)
            self._log_group(cell)

    def _log_group(self, cell: Cell, *, tags: dict[str, str] | None = None, **known: Any) -> None:
        tags = {**_tags(cell), "role": "cell", **(tags or {})}
        self.tracker.log_group(GroupRecord(key=_group_key(cell), name=_name(cell), tags=tags, **known))


def _group_key(cell: Cell) -> str:
    return f"cell/{cell.optimizer}/{cell.batch_size}"


def _name(cell: Cell) -> str:
    return f"{cell.optimizer} {cell.batch_size}"


def _tags(cell: Cell) -> dict[str, str]:
    return {"batch_size": str(cell.batch_size), "optimizer": cell.optimizer}


def _decision(contest: Contest | None, control: bool) -> dict[str, Any]:
    """Recipe and numbers of a decided contest; nothing for a cell that was rejected without one."""
    if contest is None:
        return {}
    arm, found = contest.arm, contest.comparison
    results = [result for result in arm.results.values() if not result.diverged]
    metrics = {} if found is None else {"difference": found.difference, "lower": found.lower, "upper": found.upper}
    if results:
        metrics[f"final_{arm.metric}"] = statistics.fmean(result.metrics[arm.metric] for result in results)
    return {
        "params": arm.recipe.to_dict(),
        "metrics": {f"control_{name}": value for name, value in metrics.items()} if control else metrics,
        "samples": max((result.samples for result in results), default=0),
    }
