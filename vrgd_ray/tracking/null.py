"""No tracking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vrgd_ray.tracking.tracker import GroupRecord, RunRecord, Status


class NullTracker:
    """Takes everything and keeps nothing."""

    def check(self) -> None:
        """Nothing."""

    def start(self, *, name: str, search_id: str, params: Mapping[str, Any]) -> None:
        """Nothing."""

    def log_group(self, record: GroupRecord) -> None:
        """Nothing."""

    def log_run(self, record: RunRecord) -> None:
        """Nothing."""

    def tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        """Nothing."""

    def log_point(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def tags(self) -> Mapping[str, str]:
        """None."""
        return {}

    def tag(self, tags: Mapping[str, str]) -> None:
        """Nothing."""

    def finish(self, status: Status, *, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Nothing."""

    def register_model(self, name: str, files: Sequence[Path], *, recipe: Mapping[str, Any]) -> str:
        """Nothing to register in."""
        return f"{name} was not registered: runs are not tracked."

    def how_to_open(self) -> str:
        """Nothing to open."""
        return "Runs are not tracked (--tracking-uri none)."
