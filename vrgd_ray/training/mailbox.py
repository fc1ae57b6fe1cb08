"""Where the workers of a run leave their events, and where it is decided whether another restart makes sense."""

from __future__ import annotations

from vrgd_ray.training.events import Event


class Mailbox:
    """Outlives the workers: an actor beside the process that started the run.

    Args:
        max_failures: restarts from one and the same checkpoint before the run is given up.
    """

    def __init__(self, max_failures: int) -> None:
        self.max_failures = max_failures
        self._events: list[Event] = []
        self._step, self._num_workers, self._failures = -1, 0, 0
        self._reason: str | None = None
        self._hopeless = False

    def begin(self, step: int, num_workers: int) -> bool:
        """A group of workers is about to go on from this step: whether it should.

        Machines that are lost now and then cost as many restarts as they like, as long as each finds a newer
        checkpoint; a group that has grown was restarted for that and not by a failure.
        """
        stuck = step == self._step and num_workers <= self._num_workers
        self._failures = self._failures + 1 if stuck else 0
        self._step, self._num_workers = step, num_workers
        return not self._hopeless and self._failures <= self.max_failures

    def fail(self, reason: str, hopeless: bool) -> None:
        """A worker broke, and why; `hopeless` where a restart cannot help."""
        self._reason = self._reason if self._hopeless else reason
        self._hopeless = self._hopeless or hopeless

    def put(self, event: Event) -> None:
        """Leave an event."""
        self._events.append(event)

    def take(self) -> list[Event]:
        """All events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def failure(self) -> tuple[str | None, bool]:
        """Why a worker broke last, and whether a restart cannot help."""
        return self._reason, self._hopeless
