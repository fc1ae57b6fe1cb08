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
from vrgd_ray.limit.continuation import TESTED
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.ladder import Ladder, predicted_start
from vrgd_ray.limit.listener import Listener
from vrgd_ray.limit.plan import SearchPlan, space_context
from vrgd_ray.limit.scale_controls import CONTROLS, ScaleControls
from vrgd_ray.optim.registry import base_of, is_vr
from vrgd_ray.pipeline import Pipeline
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.space import load_space, parse_overrides
from vrgd_ray.search.warm_start import first_guesses
from vrgd_ray.training.budget import count_steps
from vrgd_ray.training.result import TrainingResult

_DIVERGED = (
    "a seed diverged, so the best learning rate lies at the edge; search below it (--set lr=LOW:HIGH) or clip "
    "gradients (--set clip_grad_norm=1)"
)
Recorded = Mapping[str, tuple[Job, TrainingResult]]


class Finder:
    """Asks for jobs, takes their results, and reaches the verdicts of method section 5.

    The reference is tuned and trained on fresh seeds; a control trains it on other seeds. Then every optimizer goes its
    ladder: a cell is tuned, then contested, then the next. If a VR optimizer wins, its cell is trained again with
    scales that know nothing. Which jobs are asked for, and with which recipes, depends on the plan and on results,
    never on timing.

    recorded: finished jobs of an earlier start, replayed instead of trained. continuation: how often the search has
    gone on after a verdict; once more where a trial that is tried again changes a recipe that has been tested, and then
    everything is judged anew. max_seconds, max_samples: limits after which no further job is started; samples count
    over all starts.
    """

    def __init__(
        self,
        plan: SearchPlan,
        pipeline: Pipeline,
        listeners: Sequence[Listener] = (),
        recorded: Recorded | None = None,
        max_seconds: float | None = None,
        max_samples: int | None = None,
        continuation: int = 0,
    ) -> None:
        self.plan, self.pipeline, self.listeners = plan, pipeline, listeners
        self.recorded = recorded or {}
        # Monotonic: a clock set forward or back must neither end a search nor keep it alive.
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self._max_samples, self.continuation = max_samples, continuation
        self._trained_now: set[str] = set()
        self.stop_reason: str | None = None
        self.failure: str | None = None
        self._begin()

    def _begin(self) -> None:
        """Know nothing but what is recorded, which comes in by replay."""
        recorded = [job for job, _ in self.recorded.values()]
        self._compared = any(job.role == "confirm" for job in recorded)
        self._may_change = self.continuation > 0 or any(job.edition for job in recorded)
        self.reference_tuning = self._open_tuning(self.plan.reference_cell)
        self.reference: Arm | None = None
        self.control: Contest | None = None
        self.ladders: dict[str, Ladder] = {}
        self.scale_controls: ScaleControls | None = None
        self.runs: dict[Cell, CellRun] = {}
        self.running: dict[str, Job] = {}
        self.finished: dict[str, tuple[Job, TrainingResult]] = {}
        self._tests_again = False
        self._advance()

    # Jobs out, results in.

    @property
    def done(self) -> bool:
        """Whether no further job will be asked for."""
        if self.stop_reason is not None or self.failure is not None:
            return True
        if self._tests_again:
            return False
        control = self.control is not None and self.control.verdict is not None
        return control and self._ladders_done and (self.scale_controls is None or self.scale_controls.finished)

    def next_job(self) -> Job | None:
        """A job to train now; None while those that are out must come back first, or when done."""
        while not self.done and self._may_ask() and (proposed := self._propose()) is not None:
            job = self._edition(proposed)
            if self._tests_again:
                continue
            if job.key in self.recorded:
                self.running[job.key] = job
                self._take(*self.recorded[job.key], replayed=True)
            elif not self._stopped_by_limit(job):
                self.running[job.key] = job
                for listener in self.listeners:
                    listener.job_started(job)
                return job
        return None

    def observe(self, job: Job, result: TrainingResult) -> None:
        """Take the result of a job that was asked for; one without a finite metric counts as broken."""
        self._trained_now.add(job.key)
        self._take(job, result.checked(self.pipeline.metric), replayed=False)

    def stop(self, reason: str) -> None:
        """Ask for no further jobs; what is known stands."""
        self.stop_reason = self.stop_reason or reason

    @property
    def trained(self) -> dict[str, tuple[Job, TrainingResult]]:
        """Every training run of the search by key, those that a continuation no longer uses included."""
        return {**self.recorded, **self.finished}

    def _may_ask(self) -> bool:
        """Not while results must come back before everything is judged anew, at half of the level."""
        if self._tests_again and not self.running:
            self.recorded, self.continuation = self.trained, self.continuation + 1
            self._begin()
        return not self._tests_again

    def _edition(self, job: Job) -> Job:
        """The job under the key of its recipe: a continued search may ask for a trial or seed with another one."""
        while job.key in self.recorded and not self._answers(job):
            before, job = job, replace(job, edition=job.edition + 1)
            if self.recorded[before.key][1].error is not None:
                self._may_change = True  # what follows from its result may be asked for otherwise
            elif self._compared and job.key not in self.recorded:
                self._replace_compared(self.recorded[before.key][0], job)
        return replace(job, continuation=self.continuation)

    def _replace_compared(self, before: Job, job: Job) -> None:
        """Train a run anew with another recipe; where a verdict may rest on the one before, that needs its own level.

        Raises:
            ConfigError: nothing explains why the recipe has changed.
        """
        if not self._may_change:
            raise ConfigError(f"cannot resume: {before.key} was recorded with another recipe than this version asks.")
        if before.role in TESTED and before.continuation == self.continuation and not self._begun(job):
            self._tests_again = True

    def _begun(self, job: Job) -> bool:
        """Whether an earlier start has tested the recipe on other seeds, and has counted that."""
        recipes = [each.recipe for each, _ in self.recorded.values() if (each.role, each.cell) == (job.role, job.cell)]
        return any(recipe.with_values(seed=job.recipe.seed) == job.recipe for recipe in recipes)

    def _answers(self, job: Job) -> bool:
        """Whether a record is this job's result; what an error broke in an earlier start is tried again."""
        recorded, result = self.recorded[job.key]
        return recorded.recipe == job.recipe and (result.error is None or job.key in self._trained_now)

    def _stopped_by_limit(self, job: Job) -> bool:
        """Whether a limit forbids to start the job, which ends the search."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.stop("the time limit was reached")
        elif self._max_samples is not None:
            trained = sum(result.samples for _, result in self.trained.values())
            planned = sum(self._samples(each) for each in (*self.running.values(), job))
            if trained + planned > self._max_samples:
                self.stop("the limit on samples was reached")
        return self.stop_reason is not None

    def _samples(self, job: Job) -> int:
        return count_steps(job.recipe, self.plan.num_train_samples) * job.recipe.batch_size

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
        if self.scale_controls is not None:
            yield from self.scale_controls.proposals()

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
        self._check(job, result)
        self._advance()

    def _check(self, job: Job, result: TrainingResult) -> None:
        """The first trial is the user's own recipe: what breaks there is broken everywhere.

        The metric that a margin in per cent is a share of is looked at in every seed of the reference too.
        """
        first = (job.cell, job.role, job.index) == (self.plan.reference_cell, "search", 0)
        measure, metric = first or job.role == "reference", self.pipeline.metric
        if first and result.error:
            self.failure = f"the reference recipe cannot be trained: {result.error.rstrip('.')}."
        elif measure and self.plan.criterion.relative and result.metrics.get(metric, 1.0) <= 0:
            self.failure = f"a margin in per cent needs a positive {metric}; give --margin in units of the metric."

    def _deliver(self, job: Job, result: TrainingResult) -> None:
        if job.role == "reference" and self.reference is not None:
            self.reference.observe(job, result)
        elif job.role == "control" and self.control is not None:
            self.control.arm.observe(job, result)
        elif job.role in CONTROLS and self.scale_controls is not None:
            self.scale_controls.observe(job, result)
        elif job.cell == self.plan.reference_cell:
            self.reference_tuning.observe(job, result)
            self._open_reference()
        else:
            self.runs[job.cell].observe(job, result)

    def _open_reference(self) -> None:
        cell, recipe = self.plan.reference_cell, self.reference_tuning.best_recipe
        if self.reference_tuning.failure is not None:
            self.failure = f"the reference cannot be trained: {self.reference_tuning.failure.rstrip('.')}."
        elif recipe is not None:
            metric = self.pipeline.metric
            self.reference = Arm(cell, "reference", recipe, self.plan.confirmation_seed, metric)
            other_seeds = partial(self.plan.confirmation_seed, control=True)
            arm = Arm(cell, "control", recipe, other_seeds, metric)
            # The reference's noise scale is known and nothing has been confirmed: the starts are fixed here.
            self.ladders = {optimizer: self._ladder(optimizer) for optimizer in self.plan.optimizers}
            # At the level of the cells it vouches for.
            self.control = Contest(arm, replace(self.climb_criterion, paired=False))

    def _ladder(self, optimizer: str) -> Ladder:
        rungs, reference = self.plan.rungs(optimizer), self.plan.reference_cell
        whole = self.plan.full_grid
        return Ladder(
            rungs,
            rungs_beyond=len(rungs) if whole else 1,
            start=None if whole else predicted_start(rungs, self.noise_scale),
            floor=reference.batch_size if optimizer == reference.optimizer else None,
            bisection=self.plan.bisection,
        )

    def _advance(self) -> None:
        """Judge what can be judged, and open the rungs that this brings up."""
        if self.failure is None and self.reference is not None and self.reference.failed is not None:
            reason = self.reference.failed.error or _DIVERGED
            self.failure = f"the reference cannot be trained on fresh seeds: {reason.rstrip('.')}."
        if self.failure is not None:
            return
        self._judge_control()
        for optimizer, ladder in self.ladders.items():
            if self._guide_is_tuned(optimizer):
                self._go_on(optimizer, ladder)
        self._open_scale_controls()

    def _go_on(self, optimizer: str, ladder: Ladder) -> None:
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

    def _open_scale_controls(self) -> None:
        winner = self.winner
        if not self.plan.controls or self.scale_controls is not None or not self._ladders_done or winner is None:
            return
        contest = self.runs[winner].contest
        gain = is_vr(winner.optimizer) and winner.batch_size > self.plan.reference.batch_size
        if not gain or contest is None or contest.comparison is None:
            return
        seeds, margin, alpha = contest.seeds_wanted, contest.comparison.margin, self.plan.criterion.alpha / 2
        rule = replace(contest.criterion, margin=margin, relative=False, alpha=alpha, looks=(seeds,))
        self.scale_controls = ScaleControls(contest.arm, seeds, rule)

    @property
    def _ladders_done(self) -> bool:
        return bool(self.ladders) and all(ladder.propose() is None for ladder in self.ladders.values())

    @property
    def winner(self) -> Cell | None:
        """The cell of the largest batch that any optimizer may claim.

        Between equals a base optimizer comes first, which costs less, then the better metric.
        """
        claims = [Cell(ladder.largest, name) for name, ladder in self.ladders.items() if ladder.largest is not None]

        def rank(cell: Cell) -> tuple[int, bool, float]:
            contest = self.runs[cell].contest
            comparison = contest.comparison if contest else None
            return cell.batch_size, not is_vr(cell.optimizer), comparison.difference if comparison else 0.0

        return max(claims, key=rank, default=None)

    @property
    def noise_scale(self) -> float | None:
        """Gradient noise scale of the tuned reference, samples; None until known, or where it is not resolved."""
        return self.reference_tuning.noise_scale

    def cells(self) -> list[Cell]:
        """Every candidate cell: the grid's, and those that bisection added."""
        order = {name: place for place, name in enumerate(self.plan.optimizers)}
        return sorted({*self.plan.cells(), *self.runs}, key=lambda c: (order[c.optimizer], c.batch_size))

    def _run(self, cell: Cell) -> CellRun:
        if cell not in self.runs:
            tuning = self._open_tuning(cell, self._tuned_neighbours(cell), self.noise_scale)
            self.runs[cell] = CellRun(tuning, self._open_contest)
        return self.runs[cell]

    def _open_contest(self, cell: Cell, recipe: Recipe) -> Contest:
        arm = Arm(cell, "confirm", recipe, self.plan.confirmation_seed, self.pipeline.metric)
        return Contest(arm, self.criterion_of(cell))

    def criterion_of(self, cell: Cell) -> Criterion:
        """The rule for a cell: its share of alpha, and pairable seeds are paired."""
        ladder = self.ladders.get(cell.optimizer)
        return self._criterion(ladder.share(cell.batch_size) if ladder else 1.0)

    @property
    def climb_criterion(self) -> Criterion:
        """The rule for the cells of the climb; where optimizers start differently, of the one with the least level."""
        starts = [(ladder, ladder.start) for ladder in self.ladders.values() if ladder.start is not None]
        return self._criterion(min((ladder.share(start) for ladder, start in starts), default=1.0))

    @property
    def alpha(self) -> float:
        """Chance of a wrong claim that this start of the search is allowed: every continuation has half as much."""
        return float(self.plan.criterion.alpha / 2**self.continuation)

    def _criterion(self, share: float) -> Criterion:
        alpha = self.alpha / len(self.plan.optimizers) * share
        return replace(self.plan.criterion, alpha=alpha, paired=self.pipeline.pairable)

    def _tuned_neighbours(self, cell: Cell) -> list[Recipe]:
        """Best recipes of the cells tuned before: this optimizer's, and its guide's first; none without warm starts.

        No others: how far another optimizer has come is a matter of timing.
        """
        if not self.plan.warm_start:
            return []
        guide, own = self._guide(cell.optimizer), self._tunings(cell.optimizer)
        first = [guide] if guide is not None else []
        return [recipe for tuning in first + own if (recipe := tuning.best_recipe) is not None]

    def _guide_is_tuned(self, optimizer: str) -> bool:
        """Whether an optimizer may begin: a VR optimizer of another family than the reference waits for its base."""
        guide = self._guide(optimizer)
        return guide.study.finished if guide is not None else not self._waits_for_base(optimizer)

    def _guide(self, optimizer: str) -> CellTuning | None:
        """The cell that an optimizer's first cell learns from: the reference, or its base's first; None without one."""
        if base_of(optimizer) == self.plan.reference.optimizer:
            return self.reference_tuning
        return next(iter(self._tunings(base_of(optimizer))), None) if self._waits_for_base(optimizer) else None

    def _waits_for_base(self, optimizer: str) -> bool:
        base = base_of(optimizer)
        return base not in (optimizer, self.plan.reference.optimizer) and base in self.plan.optimizers

    def _tunings(self, optimizer: str) -> list[CellTuning]:
        return [run.tuning for run in self.runs.values() if run.cell.optimizer == optimizer]

    def _open_tuning(self, cell: Cell, tuned: Sequence[Recipe] = (), noise_scale: float | None = None) -> CellTuning:
        context = space_context(self.plan, cell)
        study = CellStudy(
            load_space(cell.optimizer, self.pipeline),
            context,
            mode=self.pipeline.mode,
            num_trials=self.plan.trials,
            width=self.plan.width,
            seed=self.plan.seed,
            overrides=parse_overrides(self.plan.settings),
            first=first_guesses(context, tuned, noise_scale),
        )
        base = self.plan.reference.with_values(
            batch_size=cell.batch_size, optimizer=cell.optimizer, seed=self.plan.tuning_seed
        )
        return CellTuning(cell, study, base, self.pipeline.metric)
