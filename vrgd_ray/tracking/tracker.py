"""What the search tells a tracking system, and the rule that tracking never stops training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["FINISHED", "KILLED", "FAILED"]


@dataclass(frozen=True, kw_only=True)
class GroupRecord:
    """What is known of a group of runs, as a cell of a search; logged as often as more is known."""

    key: str
    """Unique name within the search."""
    name: str
    """Name people read."""
    tags: Mapping[str, str]
    """What groups are filtered by: batch_size, optimizer, verdict."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The group's best recipe, once known."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers that belong to the whole group."""
    samples: int = 0
    """Samples each of its runs was trained on: the step of the metrics."""
    status: Status | None = None
    """None while the group is open."""


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
    samples: int = 0
    """Samples trained on: the step of the final metrics."""
    group: str | None = None
    """Key of the group it belongs to; None for a run directly below the search."""
    series: Sequence[tuple[int, Mapping[str, float]]] = field(default_factory=tuple)
    """Metrics on the way; the step is the number of samples seen, so that batch sizes overlay."""
    seconds: float = 0.0
    """How long the run trained."""
    status: Status = "FINISHED"
    """FAILED for a run that diverged or broke, KILLED for one that was pruned."""


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

    def log_group(self, record: GroupRecord) -> None:
        """Open a group below the parent, or add what is known of one; it closes with a status, or with the parent."""
        ...

    def log_run(self, record: RunRecord) -> None:
        """Log a finished run below its group."""
        ...

    def tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        """Set tags on runs logged before."""
        ...

    def log_point(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of the parent run itself, by the training samples seen; a point that is there is left alone."""
        ...

    def tags(self) -> Mapping[str, str]:
        """Tags of the parent run as `start` found it."""
        ...

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the parent run."""
        ...

    def finish(self, status: Status, *, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Close the parent run with the outcome and its files."""
        ...

    def register_model(self, name: str, files: Sequence[Path], *, recipe: Mapping[str, Any]) -> str:
        """Keep the files with the parent run and register them as a version of a model; return a line that says so.

        The same recipe of the same search is registered once.
        """
        ...

    def how_to_open(self) -> str:
        """One line that tells the user where to look."""
        ...
