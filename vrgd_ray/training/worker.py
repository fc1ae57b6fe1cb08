"""The Ray Train backend: the same loop on several workers, each a rank of one torch process group."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.training.checkpoint import load_state, save_state
from vrgd_ray.training.context import StateFunction
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.result import Progress, Split, TrainingResult

RESULT_FILE = "result.json"


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """How many workers a run gets, and where it keeps its checkpoints."""

    num_workers: int | tuple[int, int]
    """Workers, each one process; (fewest, most) for a group that grows and shrinks with the cluster."""
    gpus_per_worker: float = 0.0
    """GPUs of each worker; 0 trains on the CPU."""
    storage: str
    """Folder or pyarrow URI under which the run's checkpoints land."""
    name: str
    """Name of the run within the storage."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, besides those at evaluation points."""
    resize_every: float = 30.0
    """Seconds between looks whether an elastic group could have more workers; a resize is a restart."""
    max_failures: int = 3
    """Restarts from the last checkpoint after a lost worker, before the run is given up."""


class RayTrainContext:
    """A Ray Train worker as the loop sees it; every report carries a checkpoint."""

    def __init__(self, checkpoint_every: float) -> None:
        import ray.train
        import ray.train.torch

        self._train = ray.train
        context = ray.train.get_context()
        self.rank = context.get_world_rank()
        self.world_size = context.get_world_size()
        self.device = ray.train.torch.get_device()
        self.checkpoint_every, self._saved = checkpoint_every, time.monotonic()

    def initial_state(self) -> dict[str, Any] | None:
        """The last checkpoint of this run, after a restart."""
        checkpoint = self._train.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as directory:
            return load_state(Path(directory))

    def report(self, progress: Progress, state: StateFunction) -> None:
        """Report the progress with a checkpoint written by rank 0."""
        self._report({"step": progress.step, "samples": progress.samples, **progress.metrics}, state, None)

    def checkpoint_due(self) -> bool:
        """Rank 0 wants one when the last is old enough."""
        return self.rank == 0 and time.monotonic() - self._saved >= self.checkpoint_every

    def checkpoint(self, state: StateFunction) -> None:
        """Report a checkpoint alone."""
        self._report({}, state, None)

    def finish(self, result: TrainingResult, state: StateFunction) -> None:
        """Report the final result in a file beside the final state."""
        self._report({"samples": result.samples, **result.metrics}, state, result)

    def _report(self, metrics: dict[str, Any], state: StateFunction, result: TrainingResult | None) -> None:
        if self.rank > 0:
            self._train.report({})
            return
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            save_state(directory, state())
            if result is not None:
                (directory / RESULT_FILE).write_text(json.dumps(result.to_dict()))
            self._saved = time.monotonic()
            self._train.report(metrics, checkpoint=self._train.Checkpoint.from_directory(directory))


def train_on_workers(
    open_pipeline: Callable[[], Pipeline], recipe: Recipe, group: WorkerGroup, *, split: Split
) -> TrainingResult:
    """Train a recipe on a group of Ray Train workers and return rank 0's result.

    Args:
        open_pipeline: loads the pipeline inside a worker.
        recipe: what to train.
        group: workers and storage.
        split: data the final metrics are read on.

    Raises:
        RuntimeError: the run failed more often than `group.max_failures`.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def worker() -> None:
        context = RayTrainContext(group.checkpoint_every)
        if context.device.type == "cpu":
            torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
        run = TrainingRun(open_pipeline(), recipe, context)
        context.finish(run.run(split), run.state_dict)

    trainer = TorchTrainer(
        worker,
        scaling_config=ScalingConfig(
            num_workers=group.num_workers,
            elastic_resize_monitor_interval_s=group.resize_every,
            use_gpu=group.gpus_per_worker > 0,
            resources_per_worker={"GPU": group.gpus_per_worker} if group.gpus_per_worker else {"CPU": 1},
        ),
        run_config=RunConfig(
            name=group.name,
            storage_path=group.storage,
            failure_config=FailureConfig(max_failures=group.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    outcome = trainer.fit()
    with outcome.checkpoint.as_directory() as directory:
        return TrainingResult.from_dict(json.loads((Path(directory) / RESULT_FILE).read_text()))
