"""Tells user and tracker how a run on workers goes on."""

from __future__ import annotations

from collections.abc import Callable

from vrgd_ray.tracking.tracker import Tracker
from vrgd_ray.training.events import Event, Message, Started
from vrgd_ray.training.result import Progress


class RunLog:
    """Listens to the events of one run. All its starts, resizes and restarts end up in one and the same tracked run.

    `unsaved`: whether the run is over and its parameters could not be stored.

    Args:
        tracker: where metrics go, by samples; one that is there already is not logged twice.
        say: takes a line for the user.
        metric: the metric to show.
        resumed: whether this process goes on with a run of another, whose restarts and resizes count too.
    """

    def __init__(self, tracker: Tracker, say: Callable[[str], None], metric: str, *, resumed: bool = False) -> None:
        self._tracker, self._say, self._metric = tracker, say, metric
        before = tracker.tags()
        self.restarts, self.resizes = (int(before.get(name, 0)) for name in ("restarts", "resizes"))
        self._num_workers = int(before.get("workers", 0)) if resumed else 0
        self.unsaved = False

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, Progress):
            self._log(event)
            self._say(self._line(event))
        elif isinstance(event, Message):
            self._say(event.text)
        else:
            self.unsaved = not event.saved

    def _start(self, event: Started) -> None:
        for point in event.curve:
            self._log(point)
        workers = f"{event.num_workers} worker{'s' if event.num_workers > 1 else ''}"
        where = f"goes on from sample {event.samples}" if event.samples else "begins"
        self._say(f"{self._count(event)} {where} on {workers}.")
        self._num_workers = event.num_workers
        counts = {"restarts": self.restarts, "resizes": self.resizes, "workers": event.num_workers}
        self._tracker.tag({name: str(value) for name, value in counts.items()})

    def _count(self, event: Started) -> str:
        """Count a start that is not the first: one on another number of workers is a resize."""
        if self._num_workers == 0:
            return "Training"
        if event.num_workers != self._num_workers:
            self.resizes += 1
            return f"Resize {self.resizes}: training"
        self.restarts += 1
        return f"Restart {self.restarts}: training"

    def _log(self, point: Progress) -> None:
        counts = {"restarts": float(self.restarts), "resizes": float(self.resizes)}
        self._tracker.log_point(point.samples, point.metrics | counts)

    def _line(self, point: Progress) -> str:
        return (
            f"step {point.step} of {point.total_steps}, {point.samples} samples: {self._metric} "
            f"{point.metrics[self._metric]:.4g}"
        )
