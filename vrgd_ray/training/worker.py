"""The Ray Train backend: the same loop on several workers, each a rank of one torch process group."""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from vrgd_ray.config import ConfigError, Recipe
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.events import Event, Message
from vrgd_ray.training.execution import Execution
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.monitor import RunMonitor
from vrgd_ray.training.result import Split, TrainingResult
from vrgd_ray.training.worker_context import CheckpointInterval, WorkerContext

_GONE = re.compile(r"connection (closed|reset|refused|timed out)|broken pipe|timed out waiting", re.IGNORECASE)
"""What gloo says, in plain runtime errors, of a worker that has gone."""
_PATIENCE = 7 * 24 * 3600
"""Seconds that a collective may take."""


def _ignore(event: Event) -> None:
    return None


def worker_resources(gpus_per_worker: float) -> dict[str, float]:
    """What one worker takes of a machine: its share of the GPUs, or on the CPU a core."""
    return {"GPU": gpus_per_worker} if gpus_per_worker else {"CPU": 1.0}


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
    interval: CheckpointInterval = field(default_factory=CheckpointInterval)
    """How often a checkpoint is written."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""
    resize_every: float = 30.0
    """Seconds between looks whether an elastic group could have more workers; a resize is a restart."""
    max_failures: int = 3
    """Restarts from one and the same checkpoint before the run is given up; as many as need be while it gets on."""

    @property
    def worker_resources(self) -> dict[str, float]:
        """What one worker takes of a machine."""
        return worker_resources(self.gpus_per_worker)

    @property
    def needs(self) -> list[dict[str, float]]:
        """What a cluster must have for the run to begin, worker by worker."""
        fewest = self.num_workers if isinstance(self.num_workers, int) else self.num_workers[0]
        return [self.worker_resources] * fewest

    @property
    def checkpoints(self) -> str:
        """Folder or URI of the checkpoints."""
        return f"{self.storage}/{self.name}/checkpoints"


def train_on_workers(
    open_pipeline: Callable[[], Pipeline],
    recipe: Recipe,
    group: WorkerGroup,
    *,
    split: Split,
    execution: Execution | None = None,
    listen: Callable[[Event], None] = _ignore,
) -> TrainingResult:
    """Train a recipe on a group of Ray Train workers and return rank 0's result.

    Goes on from the newest checkpoint in the storage, if there is one.

    Args:
        open_pipeline: loads the pipeline inside a worker.
        recipe: what to train.
        group: workers and storage.
        split: data the final metrics are read on.
        execution: limits of the machines.
        listen: takes the events of the run, from a thread of its own.

    Raises:
        RunFailedError: the run failed more than `group.max_failures` times without getting any further, or in a way
            that no restart mends.
    """
    monitor = RunMonitor(listen, group.max_failures)
    with monitor.open() as mailbox:
        trainer = _trainer(partial(_work, open_pipeline, recipe, group, split, execution, mailbox), group)
        _beside_main_thread(trainer.fit)
    return monitor.result()


def _beside_main_thread(fit: Callable[[], Any]) -> None:
    """Call `fit` so that Ctrl-C reaches the caller: in the main thread Ray would take the signal for itself."""
    if threading.current_thread() is not threading.main_thread():
        fit()
        return
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(fit())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    outcome.result()


def _trainer(worker: Callable[[], None], group: WorkerGroup) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    def train() -> None:  # Ray takes a function, not a partial
        worker()

    return TorchTrainer(
        train,
        # A worker that waits for rank 0's evaluation is not lost; those that are, Ray finds by itself.
        torch_config=TorchConfig(timeout_s=_PATIENCE),
        scaling_config=ScalingConfig(
            num_workers=group.num_workers,
            elastic_resize_monitor_interval_s=group.resize_every,
            use_gpu=group.gpus_per_worker > 0,
            resources_per_worker=group.worker_resources,
        ),
        # Ray restarts without end; the mailbox knows when that has become pointless.
        run_config=RunConfig(
            name=group.name, storage_path=group.storage, failure_config=FailureConfig(max_failures=-1)
        ),
    )


def _work(
    open_pipeline: Callable[[], Pipeline],
    recipe: Recipe,
    group: WorkerGroup,
    split: Split,
    execution: Execution | None,
    mailbox: Any,
) -> None:
    """What every worker runs; returning without a result gives the run up."""

    _prepare_process(execution)
    context = _worker_context(group, mailbox)
    try:
        if _may_begin(context, mailbox):
            run = TrainingRun(open_pipeline(), recipe, context, execution=execution)
            context.begin(run)
            context.finish(run.run(split), run.state_dict)
    except Exception as error:
        _tell(error, mailbox)
        raise


def _may_begin(context: WorkerContext, mailbox: Any) -> bool:
    """Whether the workers should go on, or have failed here too often; the same answer for all, before all else."""
    import ray

    answer = None
    if context.rank == 0:
        try:
            newest = max(context.store.steps(), default=0)
        except OSError:  # the storage does not answer; reading it will say so
            newest = -1
        answer = ray.get(mailbox.begin.remote(newest, context.world_size))
    return bool(context.shared(answer))


def _tell(error: Exception, mailbox: Any) -> None:
    """Leave word of what broke; the traceback, where it is of the user's code and not of a lost connection."""
    import ray

    refused = isinstance(error, ConfigError)
    own = refused or not _is_of_connection(error)
    text = str(error) if refused else f"{type(error).__name__}: {error}"
    if own and not refused:
        trace = "".join(traceback.format_exception(error))
        ray.get(mailbox.put.remote(Message(text=f"A worker broke:\n{trace.rstrip()}")))
    ray.get(mailbox.fail.remote(text, hopeless=refused, own=own))


def _is_of_connection(error: Exception) -> bool:
    """Whether an error says that another machine, and not the program, is at fault."""
    if isinstance(error, (dist.DistError, ConnectionError)):
        return True
    return isinstance(error, RuntimeError) and _GONE.search(str(error)) is not None


def _worker_context(group: WorkerGroup, mailbox: Any) -> WorkerContext:
    import ray
    import ray.train
    import ray.train.torch

    place = ray.train.get_context()
    return WorkerContext(
        store=CheckpointStore(group.checkpoints, group.keep_checkpoints),
        emit=lambda event: ray.get(mailbox.put.remote(event)),
        interval=group.interval,
        device=ray.train.torch.get_device(),
        rank=place.get_world_rank(),
        world_size=place.get_world_size(),
    )


def _prepare_process(execution: Execution | None) -> None:
    if not torch.cuda.is_available():
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    if execution is not None and execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
        torch.use_deterministic_algorithms(True, warn_only=True)
