"""The finder: joins ladders, studies and contests into one source of jobs. A plain state machine without Ray."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from vrgd_ray.config import ConfigError, Recipe
from vrgd_ray.limit.arm import Arm
from vrgd_ray.limit.cell_run import CellRun
from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.ladder import Ladder
from vrgd_ray.limit.listener import Listener
from vrgd_ray.limit.plan import SearchPlan, space_context
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.search.cell_study import CellStudy, first_guesses
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.space import load_space, parse_overrides
from vrgd_ray.training.result import TrainingResult

Recorded = Mapping[str, tuple[Job, TrainingResult]]


class Finder:
    """Asks for jobs, takes their results, and reaches the verdicts of method section 5.

    The reference is tuned and trained on fresh seeds; a control trains it on other seeds. Every optimizer climbs its
    ladder: a cell is tuned, then contested, then the next. Which jobs are asked for, and with which recipes, depends
    on the plan and on results, never on timing.
    """

    def __init__(
        self,
        plan: SearchPlan,
        pipeline: Pipeline,
        listeners: Sequence[Listener] = (),
        recorded: Recorded | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self.plan, self.pipeline, self.listeners = plan, pipeline, listeners
        self.recorded = recorded or {}
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self.reference_tuning = self._open_tuning(plan.reference_cell)
        self.reference: Arm | None = None
        self.control: Contest | None = None
        self.ladders = {optimizer: Ladder(plan.rungs(optimizer)) for optimizer in plan.optimizers}
        self.runs: dict[Cell, CellRun] = {}
        self.running: dict[str, Job] = {}
        self.finished: dict[str, tuple[Job, TrainingResult]] = {}
        self.stop_reason: str | None = None
        self.failure: str | None = None
        self._advance()

    # Jobs out, results in.

    @property
    def done(self) -> bool:
        """Whether no further job will be asked for."""
        if self.stop_reason is not None or self.failure is not None:
            return True
        control = self.control is not None and self.control.verdict is not None
        return control and all(ladder.propose() is None for ladder in self.ladders.values())

    def next_job(self) -> Job | None:
        """A job to train now; None while those that are out must come back first, or when done."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.stop("the time limit was reached")
        while not self.done and (job := self._propose()) is not None:
            self.running[job.key] = job
            if job.key not in self.recorded:
                for listener in self.listeners:
                    listener.job_started(job)
                return job
            recorded, result = self.recorded[job.key]
            if recorded != job:
                raise ConfigError(f"cannot resume: {job.key} was recorded with another recipe than this version asks.")
            self._take(job, result, replayed=True)
        return None

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of a job that was asked for."""
        self._take(job, result, replayed=False)

    def stop(self, reason: str) -> None:
        """Ask for no further jobs; what is known stands."""
        self.stop_reason = self.stop_reason or reason

    # The state machine.

    def _propose(self) -> Job | None:
        return next((job for job in self._proposals() if job is not None), None)

    def _proposals(self) -> Iterator[Job | None]:
        yield self.reference_tuning.next_job()
        if self.reference is not None:
            yield self.reference.next_job(self._reference_seeds())
        for run in self._active_runs():
            yield run.next_job()
        if self.control is not None and self.control.verdict is None:
            yield self.control.arm.next_job(self.control.seeds_wanted)

    def _active_runs(self) -> list[CellRun]:
        return [run for run in self.runs.values() if run.verdict is None]

    def _contests(self) -> list[Contest]:
        contests = [run.contest for run in self.runs.values() if run.contest is not None]
        return contests + ([self.control] if self.control is not None else [])

    def _reference_seeds(self) -> int:
        return max((contest.seeds_wanted for contest in self._contests()), default=0)

    def _take(self, job: Job, result: TrainingResult, *, replayed: bool) -> None:
        del self.running[job.key]
        self.finished[job.key] = (job, result)
        for listener in self.listeners:
            listener.job_finished(job, result, replayed=replayed)
        self._deliver(job, result)
        self._check_first(job, result)
        self._advance()

    def _check_first(self, job: Job, result: TrainingResult) -> None:
        """The first trial is the user's own recipe: what breaks there is broken everywhere."""
        if (job.cell, job.role, job.index) != (self.plan.reference_cell, "search", 0):
            return
        metric = self.pipeline.metric
        if result.error:
            self.failure = f"the reference recipe cannot be trained: {result.error.rstrip('.')}."
        elif self.plan.criterion.relative and result.metrics.get(metric, 1.0) <= 0:
            self.failure = f"a margin in per cent needs a positive {metric}; give --margin in units of the metric."

    def _deliver(self, job: Job, result: TrainingResult) -> None:
        if job.role == "reference" and self.reference is not None:
            self.reference.observe(job, result)
        elif job.role == "control" and self.control is not None:
            self.control.arm.observe(job, result)
        elif job.cell == self.plan.reference_cell:
            self.reference_tuning.observe(job, result)
            self._open_reference()
        else:
            self.runs[job.cell].observe(job, result)

    def _open_reference(self) -> None:
        cell, recipe = self.plan.reference_cell, self.reference_tuning.best_recipe
        if self.reference_tuning.failure is not None:
            self.failure = f"the reference cannot be trained: {self.reference_tuning.failure}."
        elif recipe is not None:
            metric = self.pipeline.metric
            self.reference = Arm(cell, "reference", recipe, self.plan.confirmation_seed, metric)
            other_seeds = partial(self.plan.confirmation_seed, control=True)
            arm = Arm(cell, "control", recipe, other_seeds, metric)
            self.control = Contest(arm, replace(self.plan.criterion, paired=False))

    def _advance(self) -> None:
        """Judge what can be judged, and open the rungs that this brings up."""
        if self.failure is None and self.reference is not None and self.reference.failed is not None:
            reason = self.reference.failed.error or "a seed diverged"
            self.failure = f"the reference cannot be trained on fresh seeds: {reason}."
            return
        self._judge_control()
        for optimizer, ladder in self.ladders.items():
            while (batch_size := ladder.propose()) is not None:
                run = self._run(Cell(batch_size, optimizer))
                if self.reference is not None and run.contest is not None:
                    run.contest.judge(self.reference)
                if run.verdict is None:
                    break
                ladder.observe(batch_size, run.verdict == "accept")
                for listener in self.listeners:
                    listener.cell_decided(run.cell, run.verdict, control=False)

    def _judge_control(self) -> None:
        if self.control is None or self.reference is None or self.control.verdict is not None:
            return
        self.control.judge(self.reference)
        if self.control.verdict is not None:
            for listener in self.listeners:
                listener.cell_decided(self.plan.reference_cell, self.control.verdict, control=True)

    def _run(self, cell: Cell) -> CellRun:
        if cell not in self.runs:
            self.runs[cell] = CellRun(self._open_tuning(cell), self._open_contest)
        return self.runs[cell]

    def _open_contest(self, cell: Cell, recipe: Recipe) -> Contest:
        return Contest(
            Arm(cell, "confirm", recipe, self.plan.confirmation_seed, self.pipeline.metric), self.cell_criterion
        )

    @property
    def cell_criterion(self) -> Criterion:
        """The rule for a cell: the optimizers share alpha, and pairable seeds are paired."""
        criterion = self.plan.criterion
        return replace(criterion, alpha=criterion.alpha / len(self.ladders), paired=self.pipeline.pairable)

    def _open_tuning(self, cell: Cell) -> CellTuning:
        context = space_context(self.plan, cell)
        study = CellStudy(
            load_space(cell.optimizer, self.pipeline),
            context,
            mode=self.pipeline.mode,
            num_trials=self.plan.trials,
            width=self.plan.width,
            seed=self.plan.seed,
            overrides=parse_overrides(self.plan.settings),
            first=first_guesses(context),
        )
        base = self.plan.reference.with_values(
            batch_size=cell.batch_size, optimizer=cell.optimizer, seed=self.plan.tuning_seed
        )
        return CellTuning(cell, study, base, self.pipeline.metric)
