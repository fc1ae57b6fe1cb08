"""The search's record: the plan, every finished job, the plan again if extended. What `--resume` goes by."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyarrow import fs

from vrgd_ray.config import require
from vrgd_ray.limit.continuation import as_saved, check_continues, count_continuations
from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.limit.record_store import RecordStore
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class Ledger:
    """Append-only: a record is an object of its own, and one that a kill cut short counts as never written."""

    def __init__(self, location: Path | str, files: fs.FileSystem | None = None) -> None:
        """Use a folder or pyarrow URI, or a folder within the file system given."""
        self.location = str(location)
        self._store = RecordStore(self.location, files)
        self._records: list[dict[str, Any]] | None = None
        self._new_id = uuid.uuid4().hex
        self._started = time.monotonic()

    @property
    def begun(self) -> bool:
        """Whether anything has been written, as of now."""
        return not self._store.empty

    def claim(self) -> AbstractContextManager[None]:
        """Keep other searches out for the time of the context.

        Raises:
            ConfigError: another one has claimed it.
        """
        return self._store.claim()

    def read(self, plan: dict[str, Any]) -> dict[str, tuple[Job, TrainingResult]]:
        """The finished jobs of the same plan, or one it extends, by key; none where the ledger has not begun.

        Raises:
            ConfigError: the ledger holds another plan; the message names what differs.
        """
        self._records = None  # whoever held the claim before may have written since
        jobs = [record for record in self._known() if "job" in record]
        saved = self.saved_plan()
        require(bool(saved) or not jobs, f"the plan in {self.location} cannot be read; choose another --name.")
        if saved:
            check_continues(plan, saved, self.location)
        pairs = [(Job.from_dict(record["job"]), TrainingResult.from_dict(record["result"])) for record in jobs]
        return {job.key: (job, result) for job, result in pairs}

    def begin(self, plan: dict[str, Any]) -> int:
        """Write the plan, unless it stands there already; a fingerprint that cannot be told here stays as it was.

        Returns:
            How often the search has gone on after seeds had been compared: what costs level.
        """
        self._started = time.monotonic()
        saved = self.saved_plan()
        if plan.get("data_fingerprint") is None:
            plan = {**plan, "data_fingerprint": saved.get("data_fingerprint")}
        if saved != as_saved(plan):
            self._append({"search_id": self.search_id, "plan": plan}, "plan")
        return count_continuations(self._known())

    @property
    def earlier_seconds(self) -> float:
        """Wall time of the starts before this one, each up to the last run that it finished."""
        last = {record["start"]: record["seconds"] for record in self._known() if "start" in record}
        return float(sum(seconds for start, seconds in last.items() if start != self._new_id))

    @property
    def search_id(self) -> str:
        """Name of the search for other systems, the same for every start of it."""
        saved = (record["search_id"] for record in self._known() if "plan" in record)
        return str(next(saved, self._new_id))

    def saved_plan(self) -> dict[str, Any]:
        """The plan as last extended; empty where there is none."""
        plans = [record["plan"] for record in self._known() if "plan" in record]
        return dict(plans[-1]) if plans else {}

    def job_started(self, job: Job) -> None:
        """Nothing to keep: an unfinished job is repeated."""

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """Append the result."""
        if not replayed:
            clock = {"start": self._new_id, "seconds": time.monotonic() - self._started}
            self._append({"job": job.to_dict(), "result": result.to_dict(), **clock}, job.key.replace("/", "-"))

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """Nothing to keep: verdicts follow from the results."""

    def _known(self) -> list[dict[str, Any]]:
        if self._records is None:
            self._records = self._store.read()
        return self._records

    def _append(self, record: dict[str, Any], label: str) -> None:
        self._known()
        self._store.append(record, label)
        if "plan" in record:
            self._known().append(json.loads(json.dumps(record)))
