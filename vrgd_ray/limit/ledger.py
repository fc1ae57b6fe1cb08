"""The search's own record on disk: the plan, then one line per finished job. What `--resume` goes by."""

from __future__ import annotations

import json
import os
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from vrgd_ray.config import require
from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class Ledger:
    """Append-only JSON lines; a line cut short by a kill is dropped when read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, plan: dict[str, Any]) -> dict[str, tuple[Job, TrainingResult]]:
        """The finished jobs of the same plan by key; none where the ledger has not begun.

        Raises:
            ConfigError: the ledger holds another plan; the message names what differs.
        """
        lines = self._read()
        if not lines:
            return {}
        saved, own = lines[0]["plan"], json.loads(json.dumps(plan))
        differing = _differences(own, saved)
        require(
            not differing,
            f"cannot resume the search in {self.path.parent} with {'; '.join(differing)}; repeat its command, "
            "or choose another --name.",
        )
        pairs = [(Job.from_dict(line["job"]), TrainingResult.from_dict(line["result"])) for line in lines[1:]]
        return {job.key: (job, result) for job, result in pairs}

    def begin(self, plan: dict[str, Any]) -> None:
        """Write the plan as the first line, unless an earlier start has."""
        if not self._read():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"search_id": self.search_id, "plan": plan})

    @cached_property
    def search_id(self) -> str:
        """Name of the search for other systems, the same for every start of it."""
        lines = self._read()
        return str(lines[0]["search_id"]) if lines else uuid.uuid4().hex

    def saved_plan(self) -> dict[str, Any]:
        """The plan the ledger was begun with; empty where there is none."""
        lines = self._read()
        return dict(lines[0]["plan"]) if lines else {}

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


def _differences(own: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    """ "trials = 16 (it was 8)" for every value that differs, those of nested dicts by their own names."""
    found = []
    for name, value in own.items():
        before = saved.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found += _differences(value, before)
        elif value != before:
            found.append(f"{name} = {value} (it was {before})")
    return found
