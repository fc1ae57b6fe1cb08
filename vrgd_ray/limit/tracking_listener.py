"""Tells a tracker what the finder does."""

from __future__ import annotations

from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.tracking.tracker import Tracker
from vrgd_ray.training.record import training_record
from vrgd_ray.training.result import TrainingResult


class TrackingListener:
    """Logs every finished job as a run, and tags a cell's runs with its verdict."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._keys: dict[tuple[Cell, bool], list[str]] = {}

    def job_started(self, job: Job) -> None:
        """Nothing: a run is logged whole when it has finished, so that no kill leaves one running."""

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """Log the run; one that is there already is left alone."""
        self._keys.setdefault((job.cell, job.role == "control"), []).append(job.key)
        tags = {"batch_size": str(job.cell.batch_size), "optimizer": job.cell.optimizer, "role": job.role}
        name = f"{job.cell.optimizer} {job.cell.batch_size} {job.role} {job.index}"
        self.tracker.log_run(training_record(key=job.key, name=name, tags=tags, recipe=job.recipe, result=result))

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """Tag the cell's runs."""
        self.tracker.tag_runs(self._keys.get((cell, control), []), {"verdict": verdict})
