"""The Ray Tune run of a search: one experiment whose trials are whatever the source asks for.

A single Tune run spans all cells, so that its actors are reused from trial to trial; starting an actor costs more
than many a trial.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from ray import tune
from ray.tune.search import Searcher

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.job import Job
from vrgd_ray.search.pruning import CellPruner
from vrgd_ray.search.trial import broken_result, run_trial
from vrgd_ray.search.tune_context import PAYLOAD, TuneContext
from vrgd_ray.training.result import Split, TrainingResult
from vrgd_ray.training.worker import WorkerGroup, train_on_workers, worker_resources
from vrgd_ray.training.worker_context import CheckpointInterval

_TRIAL_SLOT = "trial_slot"
_MAX_FAILURES = 2


class JobSource(Protocol):
    """Where jobs come from and results go: the finder, or a list in a test."""

    @property
    def done(self) -> bool:
        """Whether no further job will be asked for."""
        ...

    def next_job(self) -> Job | None:
        """A job to train now; None while those that are out must come back first."""
        ...

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take a job's result."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrialResources:
    """What one trial gets."""

    workers: int = 1
    """Workers of a trial; above 1 it is a nested Ray Train run."""
    gpus_per_worker: float = 0.0
    """GPUs of each worker."""
    concurrent_trials: int = 1
    """Trials at once."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints of a trial, which goes on from there if its node is lost."""

    @property
    def needs(self) -> list[dict[str, float]]:
        """What must be there for a single trial to start: the resources of each of its processes."""
        if self.workers == 1:
            return [_resources(self)]
        return [_resources(self), *[worker_resources(self.gpus_per_worker)] * self.workers]


class SourceSearcher(Searcher):  # type: ignore[misc]
    """Hands a source's jobs to Tune, and Tune's results back to the source."""

    def __init__(self, source: JobSource, concurrent_trials: int) -> None:
        super().__init__(metric=PAYLOAD, mode="max")
        self.source, self.concurrent_trials = source, concurrent_trials
        self.running: dict[str, Job] = {}
        self._failure: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles the searcher for a restore that we never do: the ledger holds all that a resumed search needs.
        return {**self.__dict__, "source": None}

    def suggest(self, trial_id: str) -> Any:
        """The next job as a trial's config, None to be asked again, or FINISHED."""
        if self._failure is not None:
            raise self._failure
        if len(self.running) >= self.concurrent_trials:
            return None
        job = self.source.next_job()
        if job is None:
            return Searcher.FINISHED if self.source.done else None
        self.running[trial_id] = job
        return {"job": json.dumps(job.to_dict())}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Give the result to the source; a trial that Tune gave up on counts as broken."""
        job = self.running.pop(trial_id, None)
        if job is None:
            return
        payload = (result or {}).get(PAYLOAD)
        if not payload:
            self._observe(job, broken_result(RuntimeError("the trial's process was lost")))
        else:
            self._observe(job, TrainingResult.from_dict(json.loads(payload)))

    def _observe(self, job: Job, result: TrainingResult) -> None:
        try:
            self.source.observe(job, result)
        except Exception as error:  # raised here, Tune would take it for the trial's failure and train that again
            self._failure = error

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger holds all that a resumed search needs."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as for `save`."""


class CheckpointCleaner(tune.Callback):  # type: ignore[misc]
    """Deletes the checkpoint of a trial that has its result: nobody goes on from it any more."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Delete it; one that cannot be deleted is left."""
        if trial.checkpoint is not None:
            with suppress(OSError):
                trial.checkpoint.filesystem.delete_dir(trial.checkpoint.path)


def run_search(
    source: JobSource,
    pipeline: PipelineSource,
    resources: TrialResources,
    *,
    storage: str,
    pruner: CellPruner | None = None,
) -> None:
    """Train everything the source asks for, until it is done or the user interrupts.

    Args:
        source: asks for jobs and takes results, in this process.
        pipeline: loads the workload in the actors.
        resources: what each trial gets.
        storage: folder or pyarrow URI for Tune's own files and the checkpoints of trials.
        pruner: stops trials early; None lets all run to their end. Trials with several workers always do.

    Raises:
        OSError: the storage takes no more of Ray's files.
        Exception: whatever the source raises.
    """
    # All trials may wait for room at once, so that an autoscaler sees the whole demand, not one trial at a time.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(resources.concurrent_trials)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    prune_on = pruner.metric_name if pruner is not None else None
    trainable = partial(_trainable, pipeline=pipeline, resources=resources, storage=storage, prune_on=prune_on)
    tuner = tune.Tuner(
        tune.with_resources(trainable, _resources(resources)),
        tune_config=tune.TuneConfig(
            search_alg=SourceSearcher(source, resources.concurrent_trials),
            scheduler=pruner,
            num_samples=-1,
            reuse_actors=resources.workers == 1,
            trial_name_creator=lambda trial: f"trial_{trial.trial_id}",
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=storage,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=_MAX_FAILURES),
            callbacks=[CheckpointCleaner()],
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    )
    tuner.fit()


def ray_resources(resources: TrialResources) -> dict[str, float]:
    """Custom resources that a Ray instance of our own must declare."""
    return {_TRIAL_SLOT: float(resources.concurrent_trials)} if resources.workers > 1 else {}


def _resources(resources: TrialResources) -> dict[str, float]:
    # The driver of a nested run must hold no CPU, or it starves its own workers; {"CPU": 0} alone is refused.
    if resources.workers > 1:
        return {_TRIAL_SLOT: 1}
    return {"CPU": 1, "GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {"CPU": 1}


def _trainable(
    config: dict[str, Any], pipeline: PipelineSource, resources: TrialResources, storage: str, prune_on: str | None
) -> dict[str, str]:
    job = Job.from_dict(json.loads(config["job"]))
    if resources.workers == 1:
        device = torch.device("cuda" if resources.gpus_per_worker else "cpu")
        context = TuneContext(device, prune_on if job.role == "search" else None, resources.checkpoint_every)
        result = run_trial(pipeline, job.recipe, job.split, context)
    else:
        result = _run_nested(pipeline, job.recipe, job.split, resources, f"{storage}/nested", job.key)
    return {PAYLOAD: json.dumps(result.to_dict())}


def _run_nested(
    pipeline: PipelineSource, recipe: Recipe, split: Split, resources: TrialResources, storage: str, key: str
) -> TrainingResult:
    group = WorkerGroup(
        num_workers=resources.workers,
        gpus_per_worker=resources.gpus_per_worker,
        storage=storage,
        interval=CheckpointInterval(seconds=resources.checkpoint_every),
        name=key.replace("/", "-"),
    )
    try:
        return train_on_workers(pipeline.open, recipe, group, split=split)
    except Exception as error:  # as in run_trial: recorded, counts as the worst result, never ends the search
        return broken_result(error)
