"""Ending on SIGTERM, as a spot instance or a job scheduler sends it, without leaving anything half written."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vrgd_ray.limit.finder import Finder
from vrgd_ray.search.job import Job
from vrgd_ray.training.result import TrainingResult

EXIT_TERMINATED = 128 + signal.SIGTERM


class TerminableSource:
    """The finder as a source of jobs; `end` is called on SIGTERM, but never while a result is being recorded."""

    def __init__(self, finder: Finder, end: Callable[[], None]) -> None:
        self.finder, self._end = finder, end
        self._recording, self._terminated = False, False
        signal.signal(signal.SIGTERM, self._on_signal)

    @property
    def done(self) -> bool:
        """As the finder's."""
        return self.finder.done

    def next_job(self) -> Job | None:
        """As the finder's."""
        with self._whole():
            return self.finder.next_job()

    def observe(self, job: Job, result: TrainingResult) -> None:
        """As the finder's."""
        with self._whole():
            self.finder.observe(job, result)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        self._recording = True
        try:
            yield
        finally:
            self._recording = False
        if self._terminated:
            self._end()

    def _on_signal(self, *_: object) -> None:
        if self._terminated:
            return  # a second one, to the process and to its group: the first is ending the search
        self._terminated = True
        if not self._recording:
            self._end()
