"""Gradient noise scale: the batch size beyond which larger batches stop saving steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from vrgd_ray.config import require
from vrgd_ray.gradients.step_blocks import StepBlocks

MAX_PENDING = 256
MIN_BLOCKS = 8


class NoiseScale:
    """B_simple = tr(Sigma) / |G|^2 in samples (arXiv 1812.06162, eq. 2.9 and appendix A), averaged over steps.

    With k groups of b samples in a step, |m|^2 the squared norm of the mean gradient and q the mean over groups of
    |g_d|^2, unbiased estimates are |G|^2 = |m|^2 - (q - |m|^2)/(k - 1) and tr(Sigma) = b*k/(k - 1) * (q - |m|^2).
    Numerator and denominator are averaged separately, then divided: the ratio of a single step is biased and may be
    negative.

    group_size: b, samples in one group. num_groups (k >= 2) may differ from step to step.
    population: N, where the batches of an epoch are drawn without replacement from N samples: adds tr(Sigma)/N to
        |G|^2, which is otherwise low by about that. None for independent draws.
    decay: weight of the past relative to the newest step, in (0, 1), for an estimate that follows the training;
        None weighs all steps alike.

    Raises ConfigError for values outside these ranges.
    """

    def __init__(self, group_size: int, population: int | None = None, decay: float | None = None) -> None:
        require(group_size >= 1, f"group_size = {group_size}; it must be at least 1 sample.")
        require(population is None or population >= 2, f"population = {population}; use at least 2 samples, or None.")
        require(decay is None or 0.0 < decay < 1.0, f"decay = {decay}; it must lie between 0 and 1, or be None.")
        self.group_size = group_size
        self.population = population
        self.decay = decay
        self._blocks = StepBlocks(decay)
        self._pending: list[Tensor] = []

    def update(self, *, mean_norm_sq: float | Tensor, group_norm_sq: float | Tensor, num_groups: int | Tensor) -> None:
        """Add one step.

        mean_norm_sq: squared norm of the mean gradient, sum(m^2). group_norm_sq: mean over groups of the squared norm,
        sum(m^2 + var). num_groups: k, at least 2. Tensors (0-d) are read later, many steps at once, so that no step
        waits for the device. A step with a value that is not finite (a skipped step of a loss scaler) is left out.
        """
        values = (mean_norm_sq, group_norm_sq, num_groups)
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not tensors:
            self._add(float(mean_norm_sq), float(group_norm_sq), int(num_groups))
            return
        device = tensors[0].device
        as_double = [torch.as_tensor(value, dtype=torch.float64, device=device) for value in values]
        self._pending.append(torch.stack(as_double))
        if len(self._pending) >= MAX_PENDING:
            self._flush()

    @property
    def grad_norm_sq(self) -> float | None:
        """Averaged estimate of |G|^2, with the correction for `population`; may be negative; None before any step."""
        return self._average()[0]

    @property
    def noise_trace(self) -> float | None:
        """Averaged estimate of tr(Sigma), the summed variance of one sample's gradient; None before any step."""
        return self._average()[1]

    @property
    def value(self) -> float | None:
        """Noise scale in samples; None while |G|^2 is not resolved: not positive, or below its standard error."""
        grad_norm_sq, noise_trace = self._average()
        if grad_norm_sq is None or noise_trace is None or grad_norm_sq <= 0.0:
            return None
        inverse_and_error = self._inverse_and_error()
        if inverse_and_error is not None and inverse_and_error[0] < inverse_and_error[1]:
            return None
        return noise_trace / grad_norm_sq

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the noise scale in samples; None with fewer than 8 blocks of steps.

        A delete-one-block jackknife of the inverse |G|^2/tr(Sigma), which, unlike the ratio itself, stays near normal
        when |G|^2 is hardly known; its ends are then inverted. The upper end is infinite while |G|^2 may be 0.
        With `decay` the few blocks that carry the weight make it slightly too narrow: it covered 93 % in simulations.
        """
        inverse_and_error = self._inverse_and_error()
        if inverse_and_error is None:
            return None
        inverse, error = inverse_and_error
        reach = error * float(stdtrit(self._degrees_of_freedom(), 0.975))
        return _invert(inverse + reach), _invert(inverse - reach)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far as plain numbers and lists."""
        self._flush()
        return {"group_size": self.group_size, "decay": self.decay, "blocks": self._blocks.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned; ConfigError if group_size or decay differ."""
        for name in ("group_size", "decay"):
            mine, theirs = getattr(self, name), state[name]
            require(mine == theirs, f"{name} = {mine}, but the saved noise scale has {name} = {theirs}.")
        self._pending.clear()
        self._blocks.load_state_dict(state["blocks"])

    def _flush(self) -> None:
        if self._pending:
            rows = torch.stack(self._pending)
            self._pending = []
            for mean_norm_sq, group_norm_sq, num_groups in rows.tolist():
                self._add(mean_norm_sq, group_norm_sq, round(num_groups))

    def _add(self, mean_norm_sq: float, group_norm_sq: float, num_groups: int) -> None:
        require(num_groups >= 2, f"num_groups = {num_groups}; the noise scale needs at least 2 groups in a step.")
        if not (math.isfinite(mean_norm_sq) and math.isfinite(group_norm_sq)):
            return
        spread = (group_norm_sq - mean_norm_sq) / (num_groups - 1)
        self._blocks.add(mean_norm_sq - spread, self.group_size * num_groups * spread)

    def _average(self) -> tuple[float, float] | tuple[None, None]:
        self._flush()
        weight, grad_norm_sq, noise_trace = self._blocks.rows.sum(axis=0)
        if weight == 0.0:
            return None, None
        return float((grad_norm_sq + self._correction * noise_trace) / weight), float(noise_trace / weight)

    @property
    def _correction(self) -> float:
        return 0.0 if self.population is None else 1.0 / self.population

    def _inverse_and_error(self) -> tuple[float, float] | None:
        """Return |G|^2/tr(Sigma) and its standard error over blocks."""
        self._flush()
        rows = self._blocks.rows
        if len(rows) < MIN_BLOCKS or rows[:, 2].sum() <= 0.0:
            return None
        weight, grad_norm_sq, noise_trace = rows.sum(axis=0)
        without = (grad_norm_sq - rows[:, 1]) / (noise_trace - rows[:, 2])
        inverse = grad_norm_sq / noise_trace
        # For blocks of equal weight this is the usual factor (g - 1)/g.
        variance = ((1.0 - rows[:, 0] / weight) * (without - inverse) ** 2).sum()
        return float(inverse + self._correction), float(math.sqrt(variance))

    def _degrees_of_freedom(self) -> float:
        """Effective number of blocks, less one; blocks weigh differently with decay."""
        weights = self._blocks.rows[:, 0]
        return float(weights.sum() ** 2 / (weights**2).sum() - 1.0)


def _invert(inverse: float) -> float:
    return 1.0 / inverse if inverse > 0.0 else math.inf
