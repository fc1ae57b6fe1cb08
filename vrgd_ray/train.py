"""`python -m vrgd_ray.train`: train one configuration with Ray Train workers."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrgd_ray import cli

if TYPE_CHECKING:
    from vrgd_ray.config import Recipe
    from vrgd_ray.pipeline import PipelineSource
    from vrgd_ray.tracking.tracker import Status
    from vrgd_ray.training.result import TrainingResult

EXIT_DIVERGED = 1

DESCRIPTION = """\
Train one configuration, as a search wrote it to best.yaml, on Ray Train workers.

The result does not depend on the number of workers: the groups of every batch are divided over whatever workers there
are. Checkpoints land in the storage; the final metrics are read on test data.
"""

EPILOG = """\
examples:
  python -m vrgd_ray.train --config runs/digits/best.yaml
  python -m vrgd_ray.train --config runs/digits/best.yaml --workers 2 --set epochs=60 --set seed=7
  python -m vrgd_ray.train --config best.yaml --workers 8 --gpus-per-worker 1 --address auto --storage s3://bucket/vrgd
"""


def build_parser() -> argparse.ArgumentParser:
    """All flags, with what they mean and their defaults."""
    parser = argparse.ArgumentParser(
        prog="vrgd train", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, help="YAML file with pipeline, pipeline_args and recipe")
    add("--workers", default="1", help="Ray Train workers: a number, or 2:8 for as many as there are (default: 1)")
    add("--gpus-per-worker", type=float, default=0.0, help="GPUs of each worker (default: none, on the CPU)")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="FIELD=VALUE",
        help="change a field of the recipe",
    )
    add("--checkpoint-every", type=float, default=60.0, metavar="SECONDS", help="between checkpoints (default: 60)")
    add("--address", help="Ray cluster to use, as auto; default: start Ray on this machine")
    add("--storage", help="folder or URI for checkpoints (s3://...); default: the output folder")
    add("--name", help="name of the run; default: the configuration's folder, numbered")
    add(
        "--output", type=Path, default=Path("runs"), help="folder the run's own folder goes into (default: %(default)s)"
    )
    add("--tracking-uri", help='MLflow server or database; "none" for no tracking (default: a database in --output)')
    add("--experiment", default="vrgd", help="MLflow experiment (default: %(default)s)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 finished, 1 diverged or failed, 2 bad input."""
    return cli.run(_main, build_parser(), arguments)


def _main(options: argparse.Namespace) -> int:
    from vrgd_ray.config import require
    from vrgd_ray.pipeline import PipelineSource, load_pipeline
    from vrgd_ray.training.loop import check_fits

    name, pipeline_args, recipe = _read_config(options.config, options.settings)
    require(options.checkpoint_every > 0, f"--checkpoint-every {options.checkpoint_every:g} must be above 0.")
    fewest, most = _parse_workers(options.workers)
    pipeline = load_pipeline(name, pipeline_args)
    check_fits(recipe, pipeline.num_train_samples, most)
    result = _train(options, (fewest, most), PipelineSource.here(name, pipeline_args), recipe)
    return _print_result(result, pipeline.metric)


def _read_config(path: Path, settings: Sequence[str]) -> tuple[str, dict[str, Any], Recipe]:
    import yaml

    from vrgd_ray.config import ConfigError, Recipe, require

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path} cannot be read: {str(error).splitlines()[0]}") from error
    complete = isinstance(content, dict) and isinstance(content.get("recipe"), dict) and "pipeline" in content
    require(complete, f"--config {path} must hold pipeline and recipe, as the best.yaml of a search does.")
    recipe = Recipe.from_dict(content["recipe"]).with_values(**cli.fixed_values(settings))
    return content["pipeline"], content.get("pipeline_args") or {}, recipe


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


def _train(
    options: argparse.Namespace, workers: tuple[int, int], source: PipelineSource, recipe: Recipe
) -> TrainingResult:
    from vrgd_ray.limit.folder import RunFolder
    from vrgd_ray.training.record import training_record
    from vrgd_ray.training.worker import WorkerGroup, connect, train_on_workers

    default_name = f"{options.config.resolve().parent.name}-train"
    folder = RunFolder.choose(options.output, options.name, default_name, resume=False, storage=options.storage)
    tracker = cli.create_tracker(options.tracking_uri, options.experiment, options.output)
    group = WorkerGroup(
        num_workers=workers[0] if workers[0] == workers[1] else workers,
        checkpoint_every=options.checkpoint_every,
        gpus_per_worker=options.gpus_per_worker,
        storage=folder.storage,
        name="train",
    )
    needs = {"GPU": workers[0] * options.gpus_per_worker} if options.gpus_per_worker else {"CPU": float(workers[0])}
    tracker.check()
    print(f"Starting {options.workers} workers, which takes about half a minute ...", file=sys.stderr)
    tracker.start(name=folder.path.name, search_id=uuid.uuid4().hex, params={"command": cli.command_line("train")})
    status: Status = "FAILED"
    try:
        with connect(options.address, needs=needs):
            result = train_on_workers(source.open, recipe, group, split="test")
        tags = {"batch_size": str(recipe.batch_size), "optimizer": recipe.optimizer, "role": "train"}
        tracker.log_run(training_record(key="train", name="train", tags=tags, recipe=recipe, result=result))
        status = "FAILED" if result.diverged else "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        tracker.finish(status, metrics={}, artifacts=[])
    print(f"Checkpoints: {group.storage}/{group.name}")
    print(tracker.how_to_open())
    return result


def _print_result(result: TrainingResult, metric: str) -> int:
    if result.diverged:
        print(f"The run diverged after {result.steps} steps: the loss is no longer finite.", file=sys.stderr)
        return EXIT_DIVERGED
    first = {metric: result.metrics[metric]}
    print("Test: " + ", ".join(f"{name} {value:.4g}" for name, value in (first | result.metrics).items()))
    print(f"{result.steps} steps, {result.samples} samples, {result.samples / max(result.seconds, 1e-9):.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
