"""Who wants to know what a search does: the ledger, the tracker, the progress display."""

from __future__ import annotations

from typing import Protocol

from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class Listener(Protocol):
    """Told of every event of a search, in order. A listener never stops the search."""

    def job_started(self, job: Job) -> None:
        """A job went to a worker."""
        ...

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """A job's result arrived; `replayed` when it came from the ledger of an earlier start."""
        ...

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """A cell (or the reference's control) got its verdict."""
        ...
