"""The one training loop: plain torch, the same behind every backend."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from itertools import product
from typing import Any, cast

import torch
import torch.distributed as dist

from vrgd_ray.config import Recipe, require
from vrgd_ray.gradients import GradientMoments, NoiseScale
from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.registry import create_optimizer, hyperparameters, is_vr
from vrgd_ray.optim.statistics import scale_series
from vrgd_ray.pipeline import Batch, Data, Pipeline
from vrgd_ray.schedules import create_schedule
from vrgd_ray.training.batch_plan import BatchPlan, Chunk
from vrgd_ray.training.budget import count_steps
from vrgd_ray.training.checks import (
    check_loss,
    checked_metrics,
    load_model,
    opened_test_data,
    refuse_other,
    refuse_other_order,
)
from vrgd_ray.training.context import Context
from vrgd_ray.training.execution import Execution
from vrgd_ray.training.memory import has_batch_statistics, largest_fitting, pass_fits, refuse_split_groups
from vrgd_ray.training.modes import begin_training, evaluating
from vrgd_ray.training.placement import distribute, to_device
from vrgd_ray.training.result import Progress, Split, TrainingResult
from vrgd_ray.training.running_statistics import RunningStatistics
from vrgd_ray.training.sampler import SampleStream
from vrgd_ray.training.seeding import pass_seed, seed_generators
from vrgd_ray.training.stray_buffers import StrayBuffers

_SHAPE = "shape of "


def train(
    pipeline: Pipeline, recipe: Recipe, context: Context, *, split: Split = "validation", evaluations: int = 10
) -> TrainingResult:
    """Train the recipe and return its final metrics on the split.

    Args:
        pipeline: model, data, loss and metric.
        recipe: everything else that determines the trajectory.
        context: rank, device, and where progress and checkpoints go.
        split: data the final metrics are read on; the evaluations on the way always use validation data.
        evaluations: evaluations on the way, evenly spaced in samples, the last at the end.

    Raises:
        ConfigError: the recipe does not fit the data or the number of workers.
    """
    return TrainingRun(pipeline, recipe, context, evaluations).run(split)


class TrainingRun:
    """One run in progress: model, optimizer, position in the sample stream."""

    def __init__(
        self,
        pipeline: Pipeline,
        recipe: Recipe,
        context: Context,
        evaluations: int = 10,
        execution: Execution | None = None,
    ) -> None:
        self.pipeline, self.recipe, self.context = pipeline, recipe, context
        self.execution = execution or Execution()
        self.plan = BatchPlan(
            batch_size=recipe.batch_size,
            num_groups=recipe.num_groups,
            world_size=context.world_size,
            rank=context.rank,
        )
        self.total_steps = count_steps(recipe, pipeline.num_train_samples)
        self.schedule = create_schedule(recipe.schedule, recipe.warmup_fraction)
        self.train_data = pipeline.train_data()
        require(
            len(self.train_data) == pipeline.num_train_samples,
            f"the pipeline's num_train_samples = {pipeline.num_train_samples} but train_data() holds "
            f"{len(self.train_data)} samples.",
        )
        self._augmented = getattr(self.train_data, "augmented", None)
        self.stream = SampleStream(pipeline.num_train_samples, recipe.seed)
        self.evaluation_steps = {round((i + 1) * self.total_steps / evaluations) for i in range(evaluations)}
        self._build()
        self.step, self.seconds, self.curve = 0, 0.0, list[Progress]()
        self.checkpoint_due = False
        self._evaluated: tuple[int, dict[str, float]] = (0, {})
        state = context.initial_state()
        if state is not None:
            self.load_state_dict(state)
        self._fit_passes(state)

    def _build(self) -> None:
        seed_generators(self.recipe.seed, self.context.device)
        self.module = self.pipeline.build_model().to(self.context.device)
        begin_training(self.module, self.context.say)
        self.model = distribute(self.module, self.context)
        self.statistics = RunningStatistics(self.module, self.context.world_size)
        self.moments = GradientMoments(
            self.model, group_size=self.plan.group_size, deterministic=self.execution.deterministic
        )
        self.moments.noise_scale.population = self.pipeline.num_train_samples  # epochs draw without replacement
        options = {name: getattr(self.recipe, name) for name in hyperparameters(self.recipe.optimizer)}
        self.optimizer = create_optimizer(self.recipe.optimizer, self.module.parameters(), **options)

    def _fit_passes(self, state: dict[str, Any] | None) -> None:
        """Decide how many samples go through the model at once; a run that goes on keeps what it had, if it fits."""
        limit = self.execution.max_samples_per_pass or (state or {}).get("samples_per_pass")
        size = min(self.plan.group_size, limit or self.plan.group_size)
        searches = self.context.device.type == "cuda" and self.execution.max_samples_per_pass is None
        if searches and not has_batch_statistics(self.module):
            size = self.find_samples_per_pass(size)
        refuse_split_groups(self.module, self.plan.group_size, size)
        self.plan = replace(self.plan, max_samples_per_pass=size)

    def find_samples_per_pass(self, most: int) -> int:
        """Samples of a group that fit into a pass on every worker, found by trying `most` and halving.

        Raises:
            ConfigError: not even a single sample fits.
        """
        group = self.plan.groups[0]

        def fits(size: int) -> bool:
            def run_pass() -> None:
                batch = self._read(group, Chunk(0, size))
                torch.autograd.backward(self.pipeline.loss(self.module, batch))

            return pass_fits(run_pass, self.module, self.context.device, self.context.world_size)

        size = largest_fitting(most, fits)
        if size < self.plan.group_size:
            self.context.say(
                f"A group of {self.plan.group_size} samples does not fit into memory at once: computed in passes of "
                f"at most {size}."
            )
        return size

    def run(self, split: Split = "validation") -> TrainingResult:
        """Train to the end, or until the loss, or a parameter that is about to be evaluated, is not finite."""
        if self.step == 0:
            self.check_evaluation()
        # Read on rank 0, which evaluates, before the first step, so that a fault of it is found there.
        test_data = opened_test_data(self.pipeline) if split == "test" and self.context.rank == 0 else None
        stray = StrayBuffers(self.module)
        started = time.perf_counter()
        while self.step < self.total_steps:
            if not math.isfinite(self.train_step()) or self._overflowed():
                return self._result(started, {}, diverged=True)
            stray.report(self.context.say)
            if self.step in self.evaluation_steps or self.checkpoint_due:
                self.seconds += time.perf_counter() - started
                if self.step in self.evaluation_steps:
                    self._report()
                if self.checkpoint_due:
                    self.context.checkpoint(self.state_dict)
                started = time.perf_counter()
        return self._result(started, self._evaluate_at_end(test_data))

    @property
    def samples(self) -> int:
        """Training samples seen: the cursor in the sample stream."""
        return self.step * self.recipe.batch_size

    def check_evaluation(self) -> None:
        """Evaluate once before the first step, so that a broken `evaluate` is found before hours of training.

        Raises:
            ConfigError: it does not return the pipeline's metric as a number.
        """
        self._evaluate(self.pipeline.validation_data())

    def train_step(self) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * self.schedule.factor(self.step, self.total_steps)
        with self.statistics.step():
            loss = self._accumulate()
        if self.recipe.clip_grad_norm is not None:
            self.moments.clip_grad_norm_(self.recipe.clip_grad_norm)
        mean_loss, self.checkpoint_due = self._agree(loss)
        if math.isfinite(mean_loss):
            self.optimizer.step()
        self.step += 1
        return mean_loss

    def _overflowed(self) -> bool:
        """Whether the step before an evaluation took a parameter out of range; the next loss would tell too late."""
        if self.step not in self.evaluation_steps:
            return False
        return not all(bool(parameter.isfinite().all()) for parameter in self.module.parameters())

    def _accumulate(self) -> torch.Tensor:
        """Run this worker's groups forward and backward; return the sum of their mean losses."""
        total = torch.zeros((), device=self.context.device)
        last_group, last_chunk = self.plan.groups[-1], self.plan.chunks[-1]
        for group, chunk in product(self.plan.groups, self.plan.chunks):
            batch, weight = self._read(group, chunk), chunk.size / self.plan.group_size
            group_end = chunk == last_chunk
            with self.moments.micro_batch(last=group_end and group == last_group, group_end=group_end, weight=weight):
                loss = self.pipeline.loss(self.model, batch)
                check_loss(loss)
                torch.autograd.backward(loss)
            total += loss.detach() * weight
        return total

    def _read(self, group: int, chunk: Chunk) -> Batch:
        """The samples of one pass on the device; all that is drawn from here on belongs to this pass."""
        start = self.plan.position(self.step, group) + chunk.first
        indices = self.stream.indices(start, start + chunk.size)
        # Before the data is read: augmentation may draw too.
        seed_generators(pass_seed(self.recipe.seed, self.step, group, chunk.first), self.context.device)
        if self._augmented is None:
            return to_device(self.train_data[indices], self.context)
        return to_device(self._augmented(indices, self.stream.keys(start, indices)), self.context)

    def _agree(self, loss: torch.Tensor) -> tuple[float, bool]:
        """Mean loss over all groups, and whether any worker wants a checkpoint.

        All workers must see the same, or one would stop at a NaN, or save, while the others wait for it.
        """
        due = self.context.checkpoint_due(self.samples + self.recipe.batch_size)
        shared = torch.stack([loss, loss.new_tensor(float(due))])
        if self.context.world_size > 1:
            dist.all_reduce(shared)
        total, wishes = shared.tolist()
        return total / self.plan.num_groups, wishes > 0

    def _report(self) -> None:
        metrics = self._evaluate(self.pipeline.validation_data())
        self._evaluated = (self.step, metrics)
        progress = Progress(
            step=self.step,
            total_steps=self.total_steps,
            samples=self.samples,
            metrics=metrics | self._series(),
        )
        self.curve.append(progress)
        self.context.report(progress, self.state_dict)

    def _series(self) -> dict[str, float]:
        """What the last step tells besides the metrics: learning rate, workers, noise scale, the scale's effect."""
        series = {
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "num_workers": float(self.context.world_size),
        }
        series |= _noise_series(self.moments.noise_scale)
        if is_vr(self.recipe.optimizer):
            series |= scale_series(cast(LayerOptimizer, self.optimizer).layer_scales())
        return series

    def _evaluate_at_end(self, test_data: Data | None) -> dict[str, float]:
        """Metrics on test data where it is given, else those of the last evaluation on validation data."""
        if test_data is not None:
            return self._evaluate(test_data)
        step, metrics = self._evaluated
        return metrics if step == self.step else self._evaluate(self.pipeline.validation_data())

    def _evaluate(self, data: Data) -> dict[str, float]:
        """Metrics on rank 0, which alone reports; an empty dict elsewhere."""
        if self.context.rank > 0:
            return {}
        with evaluating(self.module):
            metrics = self.pipeline.evaluate(self.module, data)
        return checked_metrics(metrics, self.pipeline.metric)

    def _result(self, started: float, metrics: dict[str, float], *, diverged: bool = False) -> TrainingResult:
        value = metrics[self.pipeline.metric] if metrics else 0.0
        # Out of range is how a loss diverges; not a number, with parameters that are, is a fault of evaluate.
        broken = math.isnan(value)
        diverged = diverged or not math.isfinite(value)
        return TrainingResult(
            metrics={} if diverged else metrics,
            diverged=diverged,
            error=f"evaluate() gave {self.pipeline.metric} = {value}" if broken else None,
            steps=self.step,
            samples=self.samples,
            seconds=self.seconds + (0.0 if metrics else time.perf_counter() - started),
            noise_scale=self.moments.noise_scale.value,
            curve=self.curve,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything a later run needs to go on as if it had never stopped."""
        return {
            "pipeline": self._identity(),
            "recipe": self.recipe.to_dict(),
            "step": self.step,
            "samples": self.samples,
            "samples_per_pass": self.plan.max_samples_per_pass,
            "seconds": self.seconds,
            "curve": [asdict(point) for point in self.curve],
            "model": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "noise_scale": self.moments.noise_scale.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, on any number of workers.

        Raises:
            ConfigError: the state belongs to another pipeline, model or recipe; the message names what differs.
        """
        refuse_other("pipeline", state["pipeline"], self._identity())
        refuse_other_order(_parameter_names(state["pipeline"]), _parameter_names(self._identity()))
        refuse_other("recipe", state["recipe"], self.recipe.to_dict())
        self.step, self.seconds = state["step"], state["seconds"]
        self.curve = [Progress(**point) for point in state["curve"]]
        load_model(self.module, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.moments.noise_scale.load_state_dict(state["noise_scale"])

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must share with the pipeline that goes on from it."""
        kind = type(self.pipeline)
        return {
            "pipeline": f"{kind.__module__}:{kind.__qualname__}",
            "num_train_samples": self.pipeline.num_train_samples,
            **{f"{_SHAPE}{name}": list(value.shape) for name, value in self.module.named_parameters()},
        }


def _parameter_names(identity: dict[str, Any]) -> list[str]:
    return [name.removeprefix(_SHAPE) for name in identity if name.startswith(_SHAPE)]


def _noise_series(noise_scale: NoiseScale) -> dict[str, float]:
    """Noise scale since the start and its 95 % interval, in samples; what is not resolved yet is left out."""
    low, high = noise_scale.interval or (math.inf, math.inf)
    series = {"noise_scale": noise_scale.value, "noise_scale_low": low, "noise_scale_high": high}
    return {name: value for name, value in series.items() if value is not None and math.isfinite(value)}
