"""What a search costs beyond its training: `python -m benchmarks.orchestration`.

Trains instant trials (one optimizer step of a linear model) through everything a search goes through: Ray Tune, the
ledger, MLflow in a sqlite database. Prints the seconds a trial takes, start-up left out, and the driver's memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vrgd_ray import Recipe, TensorData
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.listener import Listener
from vrgd_ray.limit.tracking_listener import TrackingListener
from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.pruning import CellPruner
from vrgd_ray.search.study import TrialResources, run_search
from vrgd_ray.tracking.mlflow import MlflowTracker
from vrgd_ray.training.connection import connect
from vrgd_ray.training.result import TrainingResult

CELLS = 10
RECIPE = Recipe(optimizer="sgd", batch_size=16, lr=0.1, num_groups=2)


class Instant:
    """One step on sixteen samples."""

    metric, mode, pairable = "error", "min", True
    num_train_samples = 16
    reference = RECIPE

    def build_model(self) -> nn.Module:
        """Two weights."""
        return nn.Linear(2, 1)

    def train_data(self) -> TensorData:
        """Zeros."""
        return TensorData(torch.zeros(16, 2), torch.zeros(16, 1))

    validation_data = test_data = train_data

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Mean squared error."""
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module, data: Any) -> dict[str, float]:
        """Nothing to compute."""
        return {"error": 0.0}


class InstantJobs:
    """A source of instant trials; notes time and memory at every result."""

    def __init__(self, number: int, listeners: Sequence[Listener]) -> None:
        self.number, self.listeners, self.asked = number, listeners, 0
        self.times: list[float] = []
        self.memory: list[float] = []

    @property
    def done(self) -> bool:
        """Whether all results are there."""
        return len(self.times) == self.number

    def next_job(self) -> Job | None:
        """The next trial."""
        if self.asked == self.number:
            return None
        index, self.asked = self.asked, self.asked + 1
        cell = Cell(RECIPE.batch_size * (1 + index % CELLS), RECIPE.optimizer)
        return Job(cell=cell, role="search", index=index // CELLS, recipe=RECIPE)

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Note what the driver has used."""
        assert result.error is None, result.error
        for listener in self.listeners:
            listener.job_finished(job, result, replayed=False)
        self.times.append(time.perf_counter())
        self.memory.append(_memory())


def measure(number: int, folder: Path, concurrent: int) -> InstantJobs:
    """Train so many instant trials with everything a search writes in the folder."""
    tracker = MlflowTracker(f"sqlite:///{folder}/mlflow.db", "orchestration")
    tracker.start(name="orchestration", search_id="orchestration", params={})
    ledger = Ledger(folder / "ledger")
    ledger.begin({})
    jobs = InstantJobs(number, [ledger, TrackingListener(tracker, lambda cell, control: None)])
    with connect(None):
        pipeline = PipelineSource.here("benchmarks.orchestration:Instant", {})
        resources = TrialResources(concurrent_trials=concurrent)
        run_search(jobs, pipeline, resources, storage=str(folder / "ray"), pruner=CellPruner("error", "min"))
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    return jobs


def _memory() -> float:
    """Memory of this process in MB: as of now where the system tells, else the most so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--concurrent", type=int, default=os.cpu_count(), help="trials at once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = measure(arguments.trials, Path(folder), arguments.concurrent)
    print(f"ray {version('ray')}, mlflow {version('mlflow')}, {platform.machine()}, {os.cpu_count()} CPUs\n")
    print("| trials | seconds a trial | driver MB at the start | in the middle | at the end |\n|---|---|---|---|---|")
    warm = 4 * arguments.concurrent  # the first trials start their processes
    seconds = (jobs.times[-1] - jobs.times[warm]) / (len(jobs.times) - 1 - warm)
    memory = " | ".join(f"{jobs.memory[at]:.0f}" for at in (warm, len(jobs.memory) // 2, -1))
    print(f"| {len(jobs.times)} | {seconds:.3f} | {memory} |")


if __name__ == "__main__":
    main()
