"""`python -m vrgd_ray.train`: train one configuration with Ray Train workers."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vrgd_ray import cli

if TYPE_CHECKING:
    from vrgd_ray.config import Recipe
    from vrgd_ray.limit.folder import RunFolder
    from vrgd_ray.pipeline import Pipeline
    from vrgd_ray.tracking.tracker import Status, Tracker
    from vrgd_ray.training.configuration import Configuration
    from vrgd_ray.training.execution import Execution
    from vrgd_ray.training.result import TrainingResult
    from vrgd_ray.training.run_log import RunLog
    from vrgd_ray.training.worker import WorkerGroup
    from vrgd_ray.training.worker_context import CheckpointInterval

CONFIGURATION_FILE = "train.yaml"
EXIT_FAILED = 1

DESCRIPTION = """\
Train one configuration, as a search wrote it to best.yaml, on Ray Train workers.

The result does not depend on the number of workers: the groups of every batch are divided over whatever workers there
are. Workers may come and go (--workers 2:8): each coming or going is a restart from the newest checkpoint, and the end
is the same. Checkpoints land in the storage; the final metrics are read on test data.
"""

EPILOG = """\
examples:
  python -m vrgd_ray.train --config runs/digits/best.yaml
  python -m vrgd_ray.train --config runs/digits/best.yaml --workers 2 --set epochs=60 --set seed=7
  python -m vrgd_ray.train --config best.yaml --workers 1:8 --gpus-per-worker 1 --address auto --storage s3://bucket/vrgd
  python -m vrgd_ray.train --resume --name digits-train
"""


def build_parser() -> argparse.ArgumentParser:
    """All flags, with what they mean and their defaults."""
    parser = argparse.ArgumentParser(
        prog="vrgd train", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_run(parser.add_argument_group("what to train"))
    _add_machines(parser.add_argument_group("machines"))
    _add_checkpoints(parser.add_argument_group("checkpoints"))
    _add_tracking(parser.add_argument_group("tracking"))
    return parser


def _add_run(group: Any) -> None:
    add = group.add_argument
    add("--config", type=Path, help="YAML file with pipeline, pipeline_args and recipe; not needed with --resume")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="FIELD=VALUE",
        help="change a field of the recipe; repeatable",
    )
    add("--name", help="name of the run; default: the configuration's folder, numbered")
    add(
        "--output", type=Path, default=Path("runs"), help="folder the run's own folder goes into (default: %(default)s)"
    )
    add("--resume", action="store_true", help="go on with the run of this --name from its newest checkpoint")


def _add_machines(group: Any) -> None:
    add = group.add_argument
    add(
        "--workers",
        default="1",
        help="Ray Train workers: a number, or 2:8 for as many as there are, coming and going (default: 1)",
    )
    add("--gpus-per-worker", type=float, default=0.0, help="GPUs of each worker (default: none, on the CPU)")
    add(
        "--max-samples-per-pass",
        type=int,
        metavar="SAMPLES",
        help="compute larger groups in parts; default: a whole group or, on a GPU, as much of it as fits",
    )
    add(
        "--deterministic",
        action="store_true",
        help="sum gradients in float64 and use deterministic kernels: slower, closer between numbers of workers",
    )
    add("--address", help="Ray cluster to use, as auto; default: start Ray on this machine")
    cli.add_wait(group)


def _add_checkpoints(group: Any) -> None:
    add = group.add_argument
    add(
        "--checkpoint-every",
        default="60",
        metavar="TIME",
        help="seconds between checkpoints, or passes over the data, as 0.5epochs (default: %(default)s)",
    )
    add(
        "--keep-checkpoints", type=int, default=2, metavar="K", help="newest checkpoints to keep (default: %(default)s)"
    )
    add("--storage", help="folder or URI every machine can reach (s3://...); default: the output folder")


def _add_tracking(group: Any) -> None:
    add = group.add_argument
    add("--tracking-uri", help='MLflow server or database; "none" for no tracking (default: a database in --output)')
    add("--experiment", default="vrgd", help="MLflow experiment (default: %(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 finished, 1 diverged or failed, 2 bad input."""
    return cli.run(_main, build_parser(), arguments)


def _main(options: argparse.Namespace) -> int:
    from vrgd_ray.config import require
    from vrgd_ray.pipeline import load_pipeline
    from vrgd_ray.training.budget import check_fits
    from vrgd_ray.training.execution import Execution

    require(options.wait >= 0, f"--wait {options.wait:g} must be at least 0 seconds.")
    workers = _parse_workers(options.workers)
    execution = Execution(max_samples_per_pass=options.max_samples_per_pass, deterministic=options.deterministic)
    folder, configuration = _choose_run(options)
    pipeline = load_pipeline(configuration.pipeline, configuration.pipeline_args)
    check_fits(configuration.recipe, pipeline.num_train_samples, workers[1])
    _check_passes(pipeline, configuration.recipe, execution)
    group = _worker_group(options, workers, folder.storage, pipeline.num_train_samples)
    _check_storage(options, group)
    tracker = cli.create_tracker(options.tracking_uri, options.experiment, options.output)
    tracker.check()
    with folder.claim():
        outcome = _run(options, folder, group, configuration, execution, tracker, pipeline.metric)
    if isinstance(outcome, int):
        return outcome
    print(f"Checkpoints: {group.checkpoints}")
    print(tracker.how_to_open())
    return _print_result(outcome, pipeline.metric)


def _check_passes(pipeline: Pipeline, recipe: Recipe, execution: Execution) -> None:
    """Refuse here what every worker would refuse half a minute later."""
    from vrgd_ray.training.memory import refuse_split_groups
    from vrgd_ray.training.modes import begin_training

    if execution.max_samples_per_pass is not None:
        model = pipeline.build_model()
        begin_training(model, lambda text: None)
        refuse_split_groups(model, recipe.group_size, execution.max_samples_per_pass)


def _check_storage(options: argparse.Namespace, group: WorkerGroup) -> None:
    """Refuse a storage that cannot be used, or that holds the checkpoints of another run under this name."""
    from vrgd_ray.config import require
    from vrgd_ray.training.checkpoint import CheckpointStore

    store = CheckpointStore(group.checkpoints)
    if options.storage is not None:
        store.prepare()
    begun = bool(store.steps())
    require(
        options.resume or not begun,
        f"{group.checkpoints} holds the checkpoints of another run; choose another --name or --storage.",
    )
    if options.resume and not begun:
        _say(f"There is no checkpoint in {group.checkpoints} yet; the run begins at the beginning.")


def _run(
    options: argparse.Namespace,
    folder: RunFolder,
    group: WorkerGroup,
    configuration: Configuration,
    execution: Execution,
    tracker: Tracker,
    metric: str,
) -> TrainingResult | int:
    """Train; the result, or the exit status of a run that did not get there."""
    from vrgd_ray.limit.record_store import write_whole
    from vrgd_ray.training.connection import connect
    from vrgd_ray.training.monitor import RunFailedError
    from vrgd_ray.training.run_log import RunLog

    # Whatever can be refused is refused before the run exists in MLflow.
    with connect(options.address, needs=group.needs, wait=options.wait):
        _open_tracked_run(tracker, folder.path.name, configuration)
        folder.note_storage()
        write_whole(folder.path / CONFIGURATION_FILE, configuration.to_yaml().encode())
        log = RunLog(tracker, _say, metric, resumed=options.resume)
        signal.signal(signal.SIGTERM, _terminate)
        try:
            result = _tracked(tracker, partial(_train, group, configuration, execution, log))
        except (KeyboardInterrupt, RunFailedError, _TerminatedError) as error:
            return _stopped(folder.path.name, error)
    if log.unsaved:
        _say(
            f"vrgd train: the run is over, but its parameters could not be written to {group.checkpoints}; make room "
            f"there and go on with {cli.resume_command(folder.path.name, 'train')}"
        )
        return EXIT_FAILED
    return result


class _TerminatedError(BaseException):
    """SIGTERM, as a spot instance or a job scheduler sends it."""


def _terminate(*_: object) -> NoReturn:
    raise _TerminatedError


def _choose_run(options: argparse.Namespace) -> tuple[RunFolder, Configuration]:
    """The run's folder and what to train in it: the configuration given, or the one the run was begun with."""
    from vrgd_ray.config import require
    from vrgd_ray.limit.folder import RunFolder
    from vrgd_ray.training.configuration import Configuration

    require(
        options.config is not None or (options.resume and options.name is not None),
        "--config is needed, a YAML file as the best.yaml of a search; or --resume with the --name of a run.",
    )
    default_name = f"{options.config.resolve().parent.name}-train" if options.config else ""
    folder = RunFolder.choose(
        options.output, options.name, default_name, resume=options.resume, storage=options.storage
    )
    begun_with = folder.path / CONFIGURATION_FILE
    require(not options.resume or begun_with.exists(), f"nothing to resume: {folder.path} holds no training run.")
    configuration = Configuration.read(options.config or begun_with)
    recipe = configuration.recipe.with_values(**cli.fixed_values(options.settings))
    if not options.resume:
        return folder, replace(configuration, recipe=recipe, run_id=uuid.uuid4().hex)
    before = Configuration.read(begun_with)
    configuration = replace(configuration, recipe=recipe, run_id=before.run_id)
    differing = configuration.differences(before)
    require(
        not differing,
        f"cannot resume the run in {folder.path} with {'; '.join(differing)}; repeat its command, or choose another "
        "--name.",
    )
    return folder, configuration


def _parse_workers(text: str) -> tuple[int, int]:
    """Fewest and most workers: "4" is 4 of each, "2:8" is an elastic group."""
    from vrgd_ray.config import ConfigError, require

    fewest, colon, most = text.partition(":")
    try:
        numbers = int(fewest), int(most if colon else fewest)
    except ValueError:
        raise ConfigError(f"--workers {text} must be a number, as 4, or a range, as 2:8.") from None
    require(numbers[0] >= 1, f"--workers {text}: at least 1 worker is needed.")
    require(numbers[0] <= numbers[1], f"--workers {text}: the first number must not exceed the second.")
    return numbers


def _worker_group(
    options: argparse.Namespace, workers: tuple[int, int], storage: str, num_train_samples: int
) -> WorkerGroup:
    from vrgd_ray.config import require
    from vrgd_ray.training.worker import WorkerGroup

    require(options.gpus_per_worker >= 0, f"--gpus-per-worker {options.gpus_per_worker:g} must be at least 0.")
    require(
        options.keep_checkpoints >= 2,
        f"--keep-checkpoints {options.keep_checkpoints} must be at least 2: one may get damaged.",
    )
    return WorkerGroup(
        num_workers=workers[0] if workers[0] == workers[1] else workers,
        gpus_per_worker=options.gpus_per_worker,
        interval=_parse_interval(options.checkpoint_every, num_train_samples),
        keep_checkpoints=options.keep_checkpoints,
        storage=storage,
        name="train",
    )


def _parse_interval(text: str, num_train_samples: int) -> CheckpointInterval:
    """ "60" is seconds, "0.5epochs" half a pass over the data."""
    from vrgd_ray.config import ConfigError, require
    from vrgd_ray.training.worker_context import CheckpointInterval

    number = text.removesuffix("epochs").removesuffix("epoch")
    try:
        value = float(number)
    except ValueError:
        raise ConfigError(f"--checkpoint-every {text} must be seconds, as 60, or epochs, as 0.5epochs.") from None
    require(0 < value < math.inf, f"--checkpoint-every {text} must be above 0.")
    if number == text:
        return CheckpointInterval(seconds=value)
    return CheckpointInterval(samples=max(1, round(value * num_train_samples)))


def _open_tracked_run(tracker: Tracker, name: str, configuration: Configuration) -> None:
    recipe = configuration.recipe
    params = {**recipe.to_dict(), "pipeline": configuration.pipeline, "command": cli.command_line("train")}
    tracker.start(name=name, search_id=configuration.run_id, params=params)
    tracker.tag({"role": "train", "batch_size": str(recipe.batch_size), "optimizer": recipe.optimizer})


def _tracked(tracker: Tracker, train: Callable[[], TrainingResult]) -> TrainingResult:
    """Train, and close the tracked run whatever ends it."""
    status: Status = "FAILED"
    metrics: dict[str, float] = {}
    try:
        result = train()
        status = "FAILED" if result.diverged else "FINISHED"
        metrics = result.metrics | {"steps": float(result.steps), "seconds": result.seconds}
    except (KeyboardInterrupt, _TerminatedError):
        status = "KILLED"
        raise
    finally:
        tracker.finish(status, metrics={f"final_{name}": value for name, value in metrics.items()}, artifacts=[])
    return result


def _train(group: WorkerGroup, configuration: Configuration, execution: Execution, log: RunLog) -> TrainingResult:
    from vrgd_ray.pipeline import PipelineSource
    from vrgd_ray.training.worker import train_on_workers

    source = PipelineSource.here(configuration.pipeline, configuration.pipeline_args)
    _say("Starting the workers, which takes about half a minute ...")
    return train_on_workers(source.open, configuration.recipe, group, split="test", execution=execution, listen=log)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _stopped(name: str, error: BaseException) -> int:
    _say(f"vrgd train: {error}" if str(error) else "vrgd train: interrupted")
    print(f"Go on:       {cli.resume_command(name, 'train')}", flush=True)
    if isinstance(error, _TerminatedError):
        os._exit(128 + signal.SIGTERM)  # Ray's processes may be gone already; not another word to them
    return cli.EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED


def _print_result(result: TrainingResult, metric: str) -> int:
    if result.diverged:
        what = "broke" if result.error else "diverged"
        reason = result.error or "its loss, a parameter or the metric is no longer finite"
        _say(f"The run {what} after {result.steps} steps: {reason}.")
        return EXIT_FAILED
    first = {metric: result.metrics[metric]}
    print("Test: " + ", ".join(f"{name} {value:.4g}" for name, value in (first | result.metrics).items()))
    print(f"{result.steps} steps, {result.samples} samples, {result.samples / max(result.seconds, 1e-9):.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
