"""What the search tells a tracking system, and the rule that tracking never stops training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["FINISHED", "KILLED", "FAILED"]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One finished training run, as tracking systems know it."""

    key: str
    """Unique name within the search; logging the same key twice leaves one run."""
    name: str
    """Name people read."""
    tags: Mapping[str, str]
    """What runs are filtered by: batch_size, optimizer, role, verdict."""
    params: Mapping[str, Any]
    """The recipe."""
    metrics: Mapping[str, float]
    """Final metrics."""
    series: Sequence[tuple[int, Mapping[str, float]]] = field(default_factory=tuple)
    """Metrics on the way; the step is the number of samples seen, so that batch sizes overlay."""
    seconds: float = 0.0
    """How long the run trained."""
    status: Status = "FINISHED"
    """FAILED for a run that diverged or broke."""


class Tracker(Protocol):
    """A tracking system. After `start` no method raises: training goes on whatever happens to the tracking."""

    def check(self) -> None:
        """Refuse, before anything is started, a server that cannot be reached.

        Raises:
            ConfigError: nothing answers there.
        """
        ...

    def start(self, *, name: str, search_id: str, params: Mapping[str, Any]) -> None:
        """Open the parent run of a search, or the one an earlier start of the same search left.

        Raises:
            ConfigError: the tracking system cannot be reached; better known before the first hour of training.
        """
        ...

    def log_run(self, record: RunRecord) -> None:
        """Log a finished run below the parent."""
        ...

    def tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        """Set tags on runs logged before."""
        ...

    def log_point(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of the parent run itself, by the training samples seen; a point that is there is left alone."""
        ...

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the parent run."""
        ...

    def finish(self, status: Status, *, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Close the parent run with the outcome and its files."""
        ...

    def how_to_open(self) -> str:
        """One line that tells the user where to look."""
        ...
