"""Pruning: trials that fall behind others of their cell at the same number of samples are stopped early."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import Progress, TrainingResult

TENTH, VALUE = "tenth", "value"
"""Fields of a trial's report: samples seen, in tenths of the run, and the validation metric there."""

_FIRST_RUNG = 2
_KEPT_SHARE = 2
_NEVER_PRUNED = 4
"""Trials of a cell that always run to their end: the guesses, and what the sampler begins with. So the best complete
trial of a cell is never the best of less than that, and a median is taken over more than one."""


class CellPruner(FIFOScheduler):  # type: ignore[misc]
    """ASHA (arXiv 1810.05934) within each cell, for one Tune run that spans all cells.

    Rungs are at 2, 4 and 8 tenths of the samples. A trial goes on if it is among the better half of those that came to
    the rung before it. Seeds of a comparison are never touched.
    """

    def __init__(self, metric: str, mode: str, past: Iterable[tuple[Job, TrainingResult]] = ()) -> None:
        """Start with the jobs that an earlier start of the search has finished."""
        super().__init__()
        self.metric_name, self.mode = metric, mode
        self._cells: dict[Cell, AsyncHyperBandScheduler] = {}
        for job, result in past:
            for point in result.curve if job.role == "search" else ():
                self._judge(job, SimpleNamespace(trial_id=job.key), report_of(point, metric))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Stop a trial that has fallen behind."""
        job = Job.from_dict(json.loads(trial.config["job"]))
        if job.role != "search" or VALUE not in result:
            return str(TrialScheduler.CONTINUE)
        decision = self._judge(job, trial, result)
        return str(TrialScheduler.CONTINUE) if job.index < _NEVER_PRUNED else decision

    def _judge(self, job: Job, trial: Any, report: dict[str, Any]) -> str:
        cell = self._cells.setdefault(job.cell, self._create_cell())
        if trial.trial_id not in cell._trial_info:
            cell.on_trial_add(None, trial)
        return str(cell.on_trial_result(None, trial, report))

    def _create_cell(self) -> AsyncHyperBandScheduler:
        # Trials end by themselves: what they return last is their result.
        return AsyncHyperBandScheduler(
            time_attr=TENTH,
            metric=VALUE,
            mode=self.mode,
            max_t=10,
            grace_period=_FIRST_RUNG,
            reduction_factor=_KEPT_SHARE,
            stop_last_trials=False,
        )


def report_of(point: Progress, metric: str) -> dict[str, Any]:
    """What a trial tells the pruner at an evaluation. Evaluations lie on whole steps, hence the rounding."""
    return {TENTH: round(10 * point.step / point.total_steps), VALUE: point.metrics[metric]}
