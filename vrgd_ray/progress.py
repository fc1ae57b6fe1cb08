"""Live progress on a terminal, plain lines when piped. Both say the same things."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vrgd_ray.limit.criterion import Verdict
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult


class ProgressDisplay:
    """Listens to the finder. Use as a context manager around the search."""

    def __init__(self, metric: str, mode: str, seconds_left: Callable[[], float | None], num_cells: int) -> None:
        self.metric, self.mode, self.seconds_left, self.num_cells = metric, mode, seconds_left, num_cells
        self.console = Console(file=sys.stderr)
        self.started = time.monotonic()
        self.running: dict[str, Job] = {}
        self.best: dict[Cell, float] = {}
        self.decided: set[Cell] = set()
        self.jobs: set[str] = set()
        self._live: Live | None = None

    def __enter__(self) -> ProgressDisplay:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def job_started(self, job: Job) -> None:
        """Show it as running."""
        self.running[job.key] = job

    def job_finished(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        """Count it; a cell whose tuning or seeds went well is worth a line."""
        self.running.pop(job.key, None)
        self.jobs.add(job.key)
        value = result.metrics.get(self.metric)
        if result.error:
            self.say(f"{describe(job)} failed: {result.error}")
        elif value is None:
            self.say(f"{describe(job)} diverged after {result.steps} steps")
        elif result.pruned:
            self.say(f"{describe(job)}: pruned at {self.metric} {value:.4g}, {result.steps} steps", quiet=replayed)
        elif job.role == "search":
            self._note_best(job.cell, value)
            self.say(f"{describe(job)}: {self.metric} {value:.4g} (best {self.best[job.cell]:.4g})", quiet=replayed)
        else:
            self.say(f"{describe(job)}: test {self.metric} {value:.4g}", quiet=replayed)

    def cell_decided(self, cell: Cell, verdict: Verdict, *, control: bool) -> None:
        """Say the verdict."""
        if not control:
            self.decided.add(cell)
        what = "control of the reference against itself" if control else f"{cell.optimizer} at batch {cell.batch_size}"
        self.say(f"{what}: {verdict}")

    def say(self, text: str, *, quiet: bool = False) -> None:
        """One line with the time since the start."""
        if not quiet:
            self.console.print(f"[{clock(time.monotonic() - self.started)}] {text}", markup=False, highlight=False)

    def _note_best(self, cell: Cell, value: float) -> None:
        better = max if self.mode == "max" else min
        self.best[cell] = better(self.best.get(cell, value), value)

    def _render(self) -> Table:
        table = Table.grid(padding=(0, 2))
        left = self.seconds_left()
        table.add_row(
            Text(f"cells {len(self.decided)}/{self.num_cells}", style="bold"),
            f"runs {len(self.jobs)}",
            f"elapsed {clock(time.monotonic() - self.started)}",
            f"left about {clock(left)}" if left is not None else "starting workers",
        )
        for job in list(self.running.values()):
            best = self.best.get(job.cell)
            table.add_row("running", describe(job), f"best {best:.4g}" if best is not None else "", "")
        return table


def describe(job: Job) -> str:
    """A job in words."""
    what = {"search": "trial", "confirm": "seed", "constant": "constant-scale seed", "shuffled": "shuffled-scale seed"}
    words = what.get(job.role, f"{job.role} seed")
    return f"{job.cell.optimizer} at batch {job.cell.batch_size}, {words} {job.index + 1}"


def clock(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
