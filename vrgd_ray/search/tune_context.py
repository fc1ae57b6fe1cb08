"""A Tune trial, in one process, as the training loop sees it."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from ray import tune

from vrgd_ray.search.pruning import report_of
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import StateFunction
from vrgd_ray.training.result import Progress, TrainingResult

PAYLOAD = "payload"
"""Field of a report that holds the result as JSON: in the last report, or in the one at which the trial is pruned."""


@dataclass
class TuneContext:
    """Reports evaluations to the pruner, and saves the state now and then, so that a lost node costs little."""

    device: torch.device
    prune_on: str | None
    """Metric that decides whether the trial goes on; None for one that is never pruned."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints."""
    rank: int = 0
    world_size: int = 1
    _saved: float = field(default_factory=time.monotonic)

    def initial_state(self) -> dict[str, Any] | None:
        """The last checkpoint of this trial, where its node was lost."""
        checkpoint = tune.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as directory:
            newest = CheckpointStore(directory).newest(self.say)
        return newest[1] if newest else None

    def report(self, progress: Progress, state: StateFunction) -> None:
        """Tell the pruner, with the result as it would be if the trial ended here; a pruned trial does not return."""
        if self.prune_on is not None and progress.step < progress.total_steps:
            result = pruned_result(progress, state())
            tune.report({PAYLOAD: json.dumps(result.to_dict()), **report_of(progress, self.prune_on)})

    def checkpoint_due(self, samples: int) -> bool:
        """When the last one is old enough."""
        return time.monotonic() - self._saved >= self.checkpoint_every

    def checkpoint(self, state: StateFunction) -> None:
        """Save the state where the trial's next process finds it.

        It is an insurance: where the storage takes none, full or not shared by all nodes, the trial goes on without.
        """
        try:
            with tempfile.TemporaryDirectory() as name:
                current = state()
                CheckpointStore(name).save(current["step"], current)
                tune.report({PAYLOAD: ""}, checkpoint=tune.Checkpoint.from_directory(name))
        except Exception as error:
            self.say(f"no further checkpoints of this trial: {error}")
            self.checkpoint_every = math.inf
        self._saved = time.monotonic()

    def say(self, message: str) -> None:
        """Print it, for the trial's log."""
        print(message, file=sys.stderr)


def pruned_result(progress: Progress, state: dict[str, Any]) -> TrainingResult:
    """The result of a run that is stopped at an evaluation: what it cost, and how far it came."""
    return TrainingResult(
        metrics=progress.metrics,
        pruned=True,
        steps=progress.step,
        samples=progress.samples,
        seconds=state["seconds"],
        noise_scale=progress.metrics.get("noise_scale"),
        curve=[Progress(**point) for point in state["curve"]],
    )
