"""`python -m vrgd_ray.tune`: find the largest batch you can train with, without losing accuracy."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrgd_ray import cli

if TYPE_CHECKING:
    from vrgd_ray.limit.plan import SearchPlan
    from vrgd_ray.pipeline import Pipeline
    from vrgd_ray.search.job import Cell
    from vrgd_ray.search.space import Override

DEFAULT_MARGIN = "1%"

DESCRIPTION = f"""\
Find the largest batch you can train with, without losing accuracy.

For every batch size of the ladder and every optimizer, Ray Tune with Optuna searches learning rate, schedule, weight
decay and, for VR optimizers, the GSNR bounds, with the same number of trials in every cell. The best configuration is
trained again on fresh seeds and compared on test data with your recipe at its small batch, tuned just as hard. The
largest batch that provably loses no more than the margin is the answer; if none does, the command says so.

The margin is the loss you accept. It comes from --margin, else from the pipeline, else it is {DEFAULT_MARGIN} of the
reference's metric: a margin much smaller than the spread over seeds needs many more seeds than most people can pay
for, and a larger one would call a visible loss none.
"""

EPILOG = """\
examples:
  python -m vrgd_ray.tune                                   digits, about three minutes on two cores
  python -m vrgd_ray.tune --dry-run                         what it would do, and what that costs
  python -m vrgd_ray.tune --pipeline my_package.my_module:MyPipeline --optimizers sgd,vr_sgd --margin 0.5%
  python -m vrgd_ray.tune --set lr=1e-4:1e-1 --set schedule=cosine --trials 16
  python -m vrgd_ray.tune --address auto --storage s3://bucket/vrgd --concurrent-trials 8 --gpus-per-worker 1
"""


def build_parser() -> argparse.ArgumentParser:
    """All flags, with what they mean and their defaults."""
    parser = argparse.ArgumentParser(
        prog="vrgd tune", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_workload(parser.add_argument_group("what to search"))
    _add_verdict(parser.add_argument_group("the verdict"))
    _add_space(parser.add_argument_group("the search space"))
    _add_machines(parser.add_argument_group("machines"))
    _add_output(parser.add_argument_group("output"))
    return parser


def _add_workload(group: Any) -> None:
    group.add_argument(
        "--pipeline",
        default="pipelines.digits",
        help="module, or module:Class, that is importable (default: %(default)s)",
    )
    group.add_argument(
        "--pipeline-args",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="arguments of the pipeline's constructor; values are YAML, as 3, true or [a, b], so that text with its "
        "signs needs quotes: 'data=\"*.csv\"'",
    )
    group.add_argument(
        "--optimizers", type=cli.comma_list, help="comma-separated; default: the reference's and its VR twin"
    )
    group.add_argument(
        "--batch-sizes", type=cli.comma_integers, help="comma-separated ladder; default: doublings of the reference's"
    )
    group.add_argument("--max-batch-size", type=int, help="end of the default ladder; default: half the training set")
    group.add_argument(
        "--resolution",
        type=float,
        default=2.0,
        help="ratio of batch sizes down to which the limit is bracketed, above 1; 2 tries the ladder's sizes only "
        "(default: %(default)g)",
    )
    group.add_argument(
        "--full-grid",
        action="store_true",
        help="train every batch size of the ladder on --seeds seeds, whatever the verdicts: a table, in more time; "
        "sizes that --resolution adds are trained too",
    )
    group.add_argument("--num-groups", type=int, help="groups of every batch; default: the reference's (8)")
    group.add_argument("--epochs", type=float, help="passes over the data; default: the reference's")
    group.add_argument(
        "--trials", type=int, default=8, help="trials in every cell, the reference's included (default: %(default)s)"
    )
    group.add_argument(
        "--no-prune",
        action="store_false",
        dest="prune",
        help="train every trial to its end; else those that fall behind are stopped, which depends on timing, so that "
        "only a search without pruning can be repeated exactly. Trials with several workers are never pruned",
    )
    group.add_argument(
        "--no-warm-start",
        action="store_false",
        dest="warm_start",
        help="begin every cell at your recipe, scaled to its batch, instead of at the best of its neighbours: no cell "
        "then knows more than another",
    )
    group.add_argument("--seed", type=int, default=0, help="seed of the whole search (default: %(default)s)")


def _add_verdict(group: Any) -> None:
    group.add_argument(
        "--seeds",
        type=int,
        default=5,
        help="seeds per arm at the first look; twice that at the second, which a full grid has not (default: "
        "%(default)s)",
    )
    group.add_argument("--margin", help="accepted loss: 0.01 in units of the metric, or 1%% of the reference's metric")
    group.add_argument(
        "--alpha", type=float, default=0.05, help="chance of a wrong claim over the whole search (default: %(default)s)"
    )
    group.add_argument(
        "--controls",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="if a VR optimizer wins, train its cell again with scales that know nothing, to tell why (default: yes)",
    )


def _add_space(group: Any) -> None:
    group.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=...",
        help="search a recipe field elsewhere: NAME=value, NAME=a,b,c or NAME=low:high; repeatable",
    )
    group.add_argument("--show-space", action="store_true", help="print what will be searched, and stop")


def _add_machines(group: Any) -> None:
    group.add_argument(
        "--workers-per-trial", type=int, default=1, help="above 1, a trial is a Ray Train run (default: %(default)s)"
    )
    group.add_argument("--gpus-per-worker", type=float, default=0.0, help="GPUs of each worker (default: %(default)s)")
    group.add_argument("--concurrent-trials", type=int, help="trials at once; default: as many as fit now")
    group.add_argument("--address", help="Ray cluster to use, as auto; default: start Ray on this machine")
    cli.add_wait(group)
    group.add_argument("--storage", help="folder or URI every node can reach (s3://...); default: the output folder")
    group.add_argument("--max-hours", type=float, help="start nothing new after this long; what is known is reported")
    group.add_argument(
        "--max-samples", type=int, help="start nothing that would exceed so many training samples over all starts"
    )


def _add_output(group: Any) -> None:
    group.add_argument("--name", help="name of the run; default: the pipeline's, numbered")
    group.add_argument(
        "--output", type=Path, default=Path("runs"), help="folder the run's own folder goes into (default: %(default)s)"
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run of this name where it stopped, "
        "if you like with more --trials, --seeds or batch sizes, or a finer --resolution",
    )
    group.add_argument("--dry-run", action="store_true", help="print plan and cost, train nothing")
    group.add_argument("--tracking-uri", help='MLflow server or database; "none" for no tracking; default: in --output')
    group.add_argument(
        "--register",
        metavar="NAME",
        help="register the recommended recipe's model in MLflow under this name; it is trained once more for that",
    )
    group.add_argument("--experiment", default="vrgd", help="MLflow experiment (default: %(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 finished, 2 bad input, 130 interrupted."""
    return cli.run(_main, build_parser(), arguments)


def _main(options: argparse.Namespace) -> int:
    from vrgd_ray.limit.plan import searched_fields
    from vrgd_ray.pipeline import load_pipeline

    pipeline_args = cli.pipeline_arguments(options.pipeline_args)
    pipeline = load_pipeline(options.pipeline, pipeline_args)
    plan = _build_plan(options, pipeline, pipeline_args)
    _check_machines(options, plan)
    fields = searched_fields(plan, pipeline)
    if options.show_space:
        return _show_space(fields)
    if options.dry_run:
        return _dry_run(options, plan, pipeline)
    return _search(options, plan, pipeline)


def _build_plan(options: argparse.Namespace, pipeline: Pipeline, pipeline_args: dict[str, Any]) -> SearchPlan:
    from vrgd_ray.config import require
    from vrgd_ray.limit.plan import SearchPlan, checked_ladder, default_ladder
    from vrgd_ray.optim.registry import twin

    changes = {name: getattr(options, name) for name in ("num_groups", "epochs") if getattr(options, name) is not None}
    reference = pipeline.reference.with_values(**changes)
    ladder = (
        checked_ladder(options.batch_sizes, reference.batch_size)
        if options.batch_sizes is not None
        else default_ladder(pipeline, options.max_batch_size)
    )
    require(options.optimizers != [], "--optimizers is empty; name at least one, or leave the flag out.")
    require(
        options.batch_sizes is None or options.max_batch_size is None,
        "--batch-sizes and --max-batch-size exclude each other: the one gives the ladder, the other ends the default.",
    )
    optimizers = options.optimizers or [reference.optimizer, twin(reference.optimizer)]
    return SearchPlan(
        pipeline=options.pipeline,
        pipeline_args=pipeline_args,
        reference=reference,
        num_train_samples=pipeline.num_train_samples,
        optimizers=tuple(dict.fromkeys(optimizers)),
        batch_sizes=ladder,
        trials=options.trials,
        seeds=options.seeds,
        criterion=_criterion(options, pipeline),
        seed=options.seed,
        settings=tuple(options.settings),
        prune=options.prune,
        width=_default_concurrency(options) if options.concurrent_trials is None else options.concurrent_trials,
        resolution=options.resolution,
        controls=options.controls,
        warm_start=options.warm_start,
        full_grid=options.full_grid,
    )


def _check_machines(options: argparse.Namespace, plan: SearchPlan) -> None:
    """Refuse workers and limits that would only fail once the search is under way."""
    from vrgd_ray.config import require
    from vrgd_ray.training.batch_plan import BatchPlan

    require(not (options.dry_run and options.resume), "--dry-run plans a new search; leave --resume out.")
    untracked = (options.tracking_uri or "").lower() == "none"
    require(not (options.register and untracked), "--register needs MLflow; leave out --tracking-uri none.")
    lowest_values = {"workers_per_trial": 1, "gpus_per_worker": 0, "max_hours": 0, "max_samples": 1, "wait": 0}
    for name, lowest in lowest_values.items():
        value = getattr(options, name)
        require(value is None or value >= lowest, f"{name} = {value} must be at least {lowest}.")
    for num_groups in plan.group_counts:
        BatchPlan(batch_size=plan.reference.batch_size, num_groups=num_groups, world_size=options.workers_per_trial)


def _criterion(options: argparse.Namespace, pipeline: Pipeline) -> Any:
    from vrgd_ray.config import require
    from vrgd_ray.limit.criterion import Criterion

    margin, relative = _margin(options, pipeline)
    require(options.seeds >= 2, f"seeds = {options.seeds} must be at least 2; no verdict rests on a single seed.")
    return Criterion(
        margin=margin,
        relative=relative,
        mode=pipeline.mode,
        alpha=options.alpha,
        looks=(options.seeds,) if options.full_grid else (options.seeds, 2 * options.seeds),
        paired=pipeline.pairable,
    )


def _margin(options: argparse.Namespace, pipeline: Pipeline) -> tuple[float, bool]:
    """The margin and whether it is relative: the flag's, else the pipeline's own, else the default."""
    from vrgd_ray.config import ConfigError

    text = options.margin if options.margin is not None else getattr(pipeline, "margin", DEFAULT_MARGIN)
    relative = str(text).endswith("%")
    try:
        value = float(str(text).removesuffix("%"))
    except ValueError:
        raise ConfigError(f"--margin {text!r} must be a number, or a percentage as 1%.") from None
    return (value / 100, True) if relative else (value, False)


def _default_concurrency(options: argparse.Namespace) -> int:
    """Trials that fit on this machine; on a cluster, which may grow, the flag says how many."""
    workers: int = max(1, options.workers_per_trial)
    if options.gpus_per_worker > 0:
        import torch

        return max(1, int(torch.cuda.device_count() // (options.gpus_per_worker * workers)))
    # Where the system can tell, the cores this process may use, which in a container are fewer than the machine's.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)


def _show_space(fields: dict[Cell, dict[str, Override]]) -> int:
    for cell, ranges in fields.items():
        print(f"{cell.optimizer} at batch {cell.batch_size}")
        for name, value in ranges.items():
            print(f"  {name:<16} {value}")
    return 0


def _dry_run(options: argparse.Namespace, plan: SearchPlan, pipeline: Pipeline) -> int:
    import torch

    from vrgd_ray.limit.forecast import describe_plan
    from vrgd_ray.training.context import LocalContext
    from vrgd_ray.training.probe import seconds_per_step

    print("Timing a few steps of each cell on one worker of this machine ...", file=sys.stderr)
    torch.set_num_threads(1)  # as in a trial, which has one core
    times = {
        cell: seconds_per_step(
            pipeline, plan.reference.with_values(batch_size=cell.batch_size, optimizer=cell.optimizer), LocalContext()
        )
        for cell in (plan.reference_cell, *plan.cells())
    }
    print(describe_plan(plan, times, concurrent_trials=plan.width, metric=pipeline.metric))
    return 0


def _search(options: argparse.Namespace, plan: SearchPlan, pipeline: Pipeline) -> int:
    from vrgd_ray.limit.folder import RunFolder
    from vrgd_ray.limit.forecast import seconds_left
    from vrgd_ray.limit.session import SearchSession
    from vrgd_ray.progress import ProgressDisplay
    from vrgd_ray.report import render_html
    from vrgd_ray.search.study import TrialResources, ray_resources
    from vrgd_ray.training.checks import check_test_data
    from vrgd_ray.training.connection import connect
    from vrgd_ray.training.fingerprint import data_fingerprint

    default_name = options.pipeline.partition(":")[0].rpartition(".")[2]
    plan = replace(plan, data_fingerprint=data_fingerprint(pipeline))
    if plan.data_fingerprint is None:  # which else has read test data too
        check_test_data(pipeline)
    folder = RunFolder.choose(
        options.output, options.name, default_name, resume=options.resume, storage=options.storage
    )
    resources = TrialResources(
        workers=options.workers_per_trial,
        gpus_per_worker=options.gpus_per_worker,
        concurrent_trials=plan.width,
    )
    session = SearchSession(
        plan=folder.adopt(plan) if options.resume else plan,
        pipeline=pipeline,
        folder=folder,
        render_report=render_html,
        tracker=cli.create_tracker(options.tracking_uri, options.experiment, options.output),
        resources=resources,
        storage=folder.storage,
        command=cli.command_line("tune"),
        register=options.register,
        max_seconds=None if options.max_hours is None else options.max_hours * 3600,
        max_samples=options.max_samples,
        # Nested training without the dashboard's agent was seen to stall; a search without it starts sooner.
        connect=lambda: connect(
            options.address,
            resources=ray_resources(resources),
            needs=resources.needs,
            dashboard=resources.workers > 1,
            wait=options.wait,
        ),
    )
    result = session.run(
        lambda finder: ProgressDisplay(
            pipeline.metric,
            pipeline.mode,
            lambda: seconds_left(finder(), plan.width),
            num_cells=len(list(plan.cells())),
        )
    )
    _print_result(result, session)
    return _exit_status(result)


def _print_result(result: dict[str, Any], session: Any) -> None:
    from vrgd_ray.report import scale_sentence, summary_sentence, text_table

    print()
    if result["reference"]["mean"] is not None:
        print(text_table(result))
        print()
    print(summary_sentence(result))
    print(scale_sentence(result))
    print()
    if result["status"] in ("interrupted", "stopped"):
        print(f"Go on:     {cli.resume_command(session.folder.path.name)}")
    if result["recommended"]:
        print(f"Train it:  {result['recommended']['command']}")
    print(f"Report:    {session.folder.path / 'report.html'}")
    print(session.tracker.how_to_open())


def _exit_status(result: dict[str, Any]) -> int:
    if result["status"] == "failed":
        print(f"vrgd tune: {result['reason']}", file=sys.stderr)
        return cli.EXIT_BAD_INPUT
    return cli.EXIT_INTERRUPTED if result["status"] == "interrupted" else 0


if __name__ == "__main__":
    sys.exit(main())
