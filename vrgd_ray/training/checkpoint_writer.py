"""Writes checkpoints behind the training thread's back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from vrgd_ray.training.checkpoint import CheckpointStore, failure_reason
from vrgd_ray.training.snapshot import Snapshot


class CheckpointWriter:
    """One state at a time: the training thread pays for a copy in memory, a thread of our own for the writing.

    A storage that is full or gone never stops training: it is said, and the next state is tried in its turn. The first
    state is read back, so that one that could never be read is known at the beginning and not at the first restart.
    """

    def __init__(self, store: CheckpointStore, say: Callable[[str], None]) -> None:
        self.store, self._say = store, say
        self._snapshot = Snapshot()
        self._thread: threading.Thread | None = None
        self._checked = False
        self.written: int | None = None
        """Step of the newest state that was written; None before the first."""

    @property
    def busy(self) -> bool:
        """Whether the last state is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, step: int, state: dict[str, Any]) -> None:
        """Copy the state and begin to write it, once the one before is written."""
        self.finish()
        self._thread = threading.Thread(target=self._save, args=(step, self._snapshot.take(state)))
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last state is written, or has failed."""
        if self._thread is not None:
            self._thread.join()

    def _save(self, step: int, state: dict[str, Any]) -> None:
        try:
            self.store.save(step, state)
            self.written = step
            if not self._checked:
                self.store.load(step)
                self._checked = True
        except Exception as error:  # whatever the storage or the user's state raises, training goes on
            if self.written == step:
                self._say(f"The checkpoint of step {step} cannot be read back: {failure_reason(error)}.")
                return
            self._say(
                f"The checkpoint of step {step} could not be written to {self.store.location} "
                f"({failure_reason(error)}); training goes on and the next one is tried in its turn."
            )
