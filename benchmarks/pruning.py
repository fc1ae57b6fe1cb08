"""What pruning saves and what it costs: `python -m benchmarks.pruning`.

Tunes cells of the digits pipeline, one trial after the other, with every trial trained to its end, and asks the pruner
at each evaluation. Prints the samples that a pruned search would have trained, and the best trial with and without.
"""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import torch

from vrgd_ray.pipeline import Pipeline, load_pipeline
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.pruning import CellPruner, report_of
from vrgd_ray.search.space import SpaceContext, load_space
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train
from vrgd_ray.training.result import Progress, TrainingResult

CELLS = (Cell(64, "adamw"), Cell(128, "adamw"), Cell(256, "vr_adamw"))


def tune(pipeline: Pipeline, cell: Cell, trials: int) -> list[tuple[TrainingResult, Progress | None]]:
    """The trials of a pruned search, each trained to its end, with the evaluation at which it was pruned."""
    context = SpaceContext(batch_size=cell.batch_size, optimizer=cell.optimizer, reference=pipeline.reference)
    study = CellStudy(load_space(cell.optimizer), context, mode=pipeline.mode, num_trials=trials, width=1, seed=0)
    pruner = CellPruner(pipeline.metric, pipeline.mode)
    found: list[tuple[TrainingResult, Progress | None]] = []
    while (values := study.ask()) is not None:
        recipe = pipeline.reference.with_values(batch_size=cell.batch_size, optimizer=cell.optimizer, **values)
        job = Job(cell=cell, role="search", index=len(found), recipe=recipe)
        result = train(pipeline, recipe, LocalContext())
        stopped = _stopped_at(pruner, job, result, pipeline.metric)
        if stopped is not None:
            study.tell_pruned(job.index, stopped.samples, stopped.metrics[pipeline.metric])
        else:
            study.tell(job.index, None if result.diverged else result.metrics[pipeline.metric])
        found.append((result, stopped))
    return found


def _stopped_at(pruner: CellPruner, job: Job, result: TrainingResult, metric: str) -> Progress | None:
    trial = SimpleNamespace(trial_id=job.key, config={"job": json.dumps(job.to_dict())})
    reports = ((point, report_of(point, metric)) for point in result.curve[:-1])
    return next((p for p, report in reports if pruner.on_trial_result(None, trial, report) == "STOP"), None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16, help="trials of each cell")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = load_pipeline("pipelines.digits")
    print("| cell | trials | pruned | share of the samples trained | best complete trial | best of all |")
    print("|---|---|---|---|---|---|")
    for cell in CELLS:
        found = tune(pipeline, cell, arguments.trials)
        trained = sum(stopped.samples if stopped else result.samples for result, stopped in found)
        share = trained / sum(result.samples for result, _ in found)
        values = [(result.metrics.get(pipeline.metric, 0.0), stopped) for result, stopped in found]
        best, best_complete = max(v for v, _ in values), max(v for v, stopped in values if stopped is None)
        pruned = sum(stopped is not None for _, stopped in found)
        print(
            f"| {cell.optimizer} at {cell.batch_size} | {len(found)} | {pruned} | {share:.2f} "
            f"| {best_complete:.4f} | {best:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
