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
        self._step, self._num_workers, self._starts = -1, 0, 0
        self._reason: str | None = None
        self._groups = 0
        self._errors: dict[str, int] = {}  # the group each came from first
        self._hopeless = False
        self.given_up = False

    def begin(self, step: int, num_workers: int) -> bool:
        """A group of workers is about to start from the checkpoint of this step: whether it should.

        Machines that are lost now and then cost as many restarts as they like, as long as each finds another
        checkpoint; a group that has grown was restarted for that and not by a failure.
        """
        if step != self._step:
            self._starts = 0
            self._errors.clear()
        self._groups += 1
        self._starts += num_workers <= self._num_workers or self._starts == 0
        self._step, self._num_workers = step, num_workers
        self.given_up = self._hopeless or self._starts > self.max_failures + 1
        return not self.given_up

    def fail(self, reason: str, *, hopeless: bool, own: bool) -> None:
        """A worker broke, and why.

        hopeless: no restart can help. own: the error is of the program, not of the connection to other workers; one
        that comes at a second start without progress will come at a third. Several workers may tell the same error of
        one start, as where a folder of the data is gone for a moment; that counts once.
        """
        if own:
            hopeless = hopeless or self._errors.setdefault(reason, self._groups) < self._groups
        if not self._hopeless:
            self._reason, self._hopeless = reason, hopeless

    def put(self, event: Event) -> None:
        """Leave an event."""
        self._events.append(event)

    def take(self) -> list[Event]:
        """All events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def failure(self) -> str | None:
        """Why a worker broke last, or why the run was given up."""
        return self._reason
