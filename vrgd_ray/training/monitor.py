"""Follows a run on workers from the process that started it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vrgd_ray.training.events import Event, Finished
from vrgd_ray.training.mailbox import Mailbox
from vrgd_ray.training.result import TrainingResult

_POLL_SECONDS = 0.2


class RunFailedError(RuntimeError):
    """The workers of a run broke too often without getting any further, or in a way that no restart mends."""


class RunMonitor:
    """Hands the events of a run to `listen`, from a thread of its own, and keeps its result."""

    def __init__(self, listen: Callable[[Event], None], max_failures: int) -> None:
        self._listen, self._max_failures = listen, max_failures
        self._result: TrainingResult | None = None
        self._reason: str | None = None

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The mailbox, an actor on this machine: losing a worker's machine does not lose it."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote(self._max_failures)
        over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(mailbox, over), daemon=True)
        thread.start()
        try:
            yield mailbox
        finally:
            over.set()
            thread.join()
            self._deliver(mailbox)
            self._reason = ray.get(mailbox.failure.remote())
            ray.kill(mailbox)

    def result(self) -> TrainingResult:
        """The result of the run that is over.

        Raises:
            RunFailedError: the run was given up.
        """
        if self._result is not None:
            return self._result
        raise RunFailedError(
            f"the run was given up: {self._reason or 'its workers were lost again and again, with no word of why'}"
        )

    def _follow(self, mailbox: Any, over: threading.Event) -> None:
        while not over.wait(_POLL_SECONDS):
            self._deliver(mailbox)

    def _deliver(self, mailbox: Any) -> None:
        import ray

        for event in ray.get(mailbox.take.remote()):
            if isinstance(event, Finished):
                self._result = event.result
            self._listen(event)
