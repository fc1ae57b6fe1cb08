"""The search on disk: the plan, a line per finished job, the plan again if extended. What `--resume` goes by."""

from __future__ import annotations

import json
import os
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from vrgd_ray.limit.continuation import as_saved, check_continues
from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class Ledger:
    """Append-only JSON lines; a line cut short by a kill is dropped when read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, plan: dict[str, Any]) -> dict[str, tuple[Job, TrainingResult]]:
        """The finished jobs of the same plan, or one it extends, by key; none where the ledger has not begun.

        Raises:
            ConfigError: the ledger holds another plan; the message names what differs.
        """
        lines = self._read()
        if not lines:
            return {}
        check_continues(plan, self.saved_plan(), str(self.path.parent))
        jobs = [line for line in lines if "job" in line]
        pairs = [(Job.from_dict(line["job"]), TrainingResult.from_dict(line["result"])) for line in jobs]
        return {job.key: (job, result) for job, result in pairs}

    def begin(self, plan: dict[str, Any]) -> int:
        """Write the plan, unless it stands there already; return how often it has been extended since the first."""
        if self.saved_plan() != as_saved(plan):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"search_id": self.search_id, "plan": plan})
        return sum("plan" in line for line in self._read()) - 1

    @cached_property
    def search_id(self) -> str:
        """Name of the search for other systems, the same for every start of it."""
        lines = self._read()
        return str(lines[0]["search_id"]) if lines else uuid.uuid4().hex

    def saved_plan(self) -> dict[str, Any]:
        """The plan as last extended; empty where there is none."""
        plans = [line["plan"] for line in self._read() if "plan" in line]
        return dict(plans[-1]) if plans else {}

    def job_started(self, job: Job) -> None:
        """Nothing to keep: an unfinished job is repeated."""

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """Append the result."""
        if not replayed:
            self._append({"job": job.to_dict(), "result": result.to_dict()})

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """Nothing to keep: verdicts follow from the results."""

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        text = self.path.read_text()
        complete, _, rest = text.rpartition("\n")
        if rest:
            self.path.write_text(complete + "\n" if complete else "")
        return [json.loads(line) for line in complete.splitlines()]
