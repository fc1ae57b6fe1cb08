"""What all layer-wise optimizers share: options per group, checks before any change, the GSNR scale, the step loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.checks import checked_gradient, checked_variance, consume, validate_options
from vrgd_ray.optim.gsnr import apply_control, gsnr_scale

Group = dict[str, Any]
State = dict[str, Any]


@dataclass(slots=True)
class Layer:
    """One parameter tensor that takes part in a step, with everything the step reads and writes."""

    param: Tensor
    grad: Tensor
    """Mean gradient over the groups."""
    variance: Tensor | None
    """Population variance of the gradient over the groups; None where the scale is off."""
    state: State
    index: int
    """Place of the parameter among all parameters of the optimizer."""


class LayerOptimizer(torch.optim.Optimizer):
    """Optimizer that treats one parameter tensor ("layer") as a unit; subclasses add the update rule.

    Groups with bounds (1, 1), or without bounds, receive the mean gradient itself and never read a variance.
    """

    always_float32 = False
    """Whether half-precision parameters have float32 state even where the scale is off."""

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; every option can differ from the optimizer's own.

        Raises:
            ConfigError: an option is out of its range.
        """
        super().add_param_group(param_group)
        try:
            validate_options(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; check them all before the first is changed.

        Raises:
            RuntimeError: a variance is missing or was used by an earlier step, or a gradient is sparse or complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = self._collect()
        for group, layers in work:
            consume(layer.variance for layer in layers)
            self._step_group(group, layers)
        return loss

    def _collect(self) -> list[tuple[Group, list[Layer]]]:
        index = count()
        return [(group, self._layers(group, index)) for group in self.param_groups]

    def _layers(self, group: Group, index: count[int]) -> list[Layer]:
        on = scaled(group)
        return [
            Layer(param, checked_gradient(param), checked_variance(param) if on else None, self.state[param], place)
            for param, place in zip(group["params"], index, strict=False)
            if param.grad is not None
        ]

    def _step_group(self, group: Group, layers: list[Layer]) -> None:
        group["gsnr_step"] = group.get("gsnr_step", 0) + 1
        for layer in layers:
            dtype = self._dtype(group, layer.param)
            param = layer.param.to(dtype)
            self._prepare(group, param, layer.state)
            self._update(group, param, self._gradient(group, layer).to(dtype), layer.state)
            if param is not layer.param:
                layer.param.copy_(param)

    def _dtype(self, group: Group, param: Tensor) -> torch.dtype:
        """Type of the state and of the arithmetic."""
        low = param.dtype in (torch.bfloat16, torch.float16)
        return torch.float32 if low and (scaled(group) or self.always_float32) else param.dtype

    def _gradient(self, group: Group, layer: Layer) -> Tensor:
        """Mean gradient times the scale; the mean gradient itself where the scale is off."""
        if layer.variance is None:
            return layer.grad
        scale = gsnr_scale(layer.grad, layer.variance, group["gsnr_bounds"])
        key = (group["gsnr_seed"], group["gsnr_step"], layer.index)
        return self._weight(group, apply_control(scale, group["gsnr_control"], key), layer.state) * layer.grad

    def _prepare(self, group: Group, param: Tensor, state: State) -> None:
        """Create the state of a layer that is new."""

    def _weight(self, group: Group, scale: Tensor, state: State) -> Tensor:
        """What multiplies the mean gradient: the scale, or its running mean."""
        return scale

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        """Apply the base rule to one layer."""
        raise NotImplementedError


def scaled(group: Group) -> bool:
    """Whether the GSNR scale is on for the group."""
    lower, upper = group.get("gsnr_bounds", (1.0, 1.0))
    return not lower == upper == 1.0
