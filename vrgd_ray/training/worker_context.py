"""One worker of several as the loop sees it: checkpoints in a store, events for the process that started the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from vrgd_ray.config import ConfigError
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.checkpoint_writer import CheckpointWriter
from vrgd_ray.training.context import StateFunction
from vrgd_ray.training.events import Event, Finished, Message, Started
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.result import Progress, TrainingResult


@dataclass(frozen=True, kw_only=True)
class CheckpointInterval:
    """How often a checkpoint is written: by the clock or, where `samples` is given, by the samples seen."""

    seconds: float = 60.0
    """Seconds between checkpoints."""
    samples: int | None = None
    """Training samples between checkpoints, instead of seconds."""


class WorkerContext:
    """A worker of a run; rank 0 writes the checkpoints, in the background, and sends the events."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        emit: Callable[[Event], None],
        interval: CheckpointInterval,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.rank, self.world_size, self.device = rank, world_size, device
        self.store, self.interval = store, interval
        self._emit = emit
        self._writer = CheckpointWriter(store, self.say)
        self._saved_at, self._saved_samples = time.monotonic(), 0

    def initial_state(self) -> dict[str, Any] | None:
        """The newest checkpoint that can be read, the same on all workers: rank 0 chooses.

        Raises:
            ConfigError: there are checkpoints and none can be read, or this worker does not see the one chosen.
        """
        found = self.store.newest(self.say) if self.rank == 0 else None
        step = self.shared(found[0] if found else None)
        if step is None:
            return None
        state = found[1] if found else self._load(step)
        self._saved_samples = state["samples"]
        return state

    def _load(self, step: int) -> dict[str, Any]:
        try:
            return self.store.load(step)
        except FileNotFoundError as error:
            raise ConfigError(
                f"a worker does not find the checkpoint of step {step} in {self.store.location}; --storage must be a "
                "place that every machine can reach."
            ) from error

    def shared(self, value: Any) -> Any:
        """Rank 0's value, on every worker."""
        if self.world_size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def begin(self, run: TrainingRun) -> None:
        """Send word that the workers train; a run at its very start writes its first checkpoint, to try it out."""
        self.send(Started(num_workers=self.world_size, samples=run.samples, curve=run.curve))
        if run.step == 0:
            self.checkpoint(run.state_dict)

    def report(self, progress: Progress, state: StateFunction) -> None:
        """Send the progress on; at the end of training keep its state before the final evaluation, which may fail."""
        self.send(progress)
        if progress.step == progress.total_steps:
            self.checkpoint(state)
            self._writer.finish()

    def checkpoint_due(self, samples: int) -> bool:
        """Rank 0 wants one when the last is old enough and written."""
        if self.rank > 0 or self._writer.busy:
            return False
        if self.interval.samples is not None:
            return samples - self._saved_samples >= self.interval.samples
        return time.monotonic() - self._saved_at >= self.interval.seconds

    def checkpoint(self, state: StateFunction) -> None:
        """Begin to write a checkpoint on rank 0."""
        if self.rank == 0:
            current = state()
            self._writer.write(current["step"], current)
            self._saved_at, self._saved_samples = time.monotonic(), current["samples"]

    def finish(self, result: TrainingResult, state: StateFunction) -> None:
        """Send the result, once its state is written; a run that diverged on the way leaves no state of its end."""
        if not result.diverged and self._writer.written != result.steps:
            self.checkpoint(state)
        self._writer.finish()
        self.send(Finished(result=result, saved=result.diverged or self._writer.written == result.steps))

    def say(self, message: str) -> None:
        """Send a sentence for the user."""
        self.send(Message(text=message))

    def send(self, event: Event) -> None:
        """Send an event from rank 0; the others have nothing to add."""
        if self.rank == 0:
            self._emit(event)
