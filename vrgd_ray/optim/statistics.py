"""What the scale did to the last step, computed when asked from the moments that are still on the parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerScale:
    """Effect of the scale on one layer in the last step."""

    param: Tensor
    """The layer's parameter."""
    mean_scale: float
    """Mean of the scale s over the layer's elements, unit-free; 1 where the scale is off."""
    scaled_norm_sq: float
    """Squared norm of s*m, m being the mean gradient."""
    norm_sq: float
    """Squared norm of m."""

    @property
    def step_ratio(self) -> float:
        """norm(s*m) / norm(m), unit-free: what is left of the gradient's length; 1 where there is no gradient."""
        return math.sqrt(self.scaled_norm_sq / self.norm_sq) if self.norm_sq > 0.0 else 1.0


def measure(pairs: list[tuple[Tensor, Tensor | None]]) -> list[LayerScale]:
    """Compare every parameter's gradient with and without its scale; None is a scale that is off."""
    rows = [_sums(param, scale).cpu() for param, scale in pairs]  # the only place that waits for a device
    return [LayerScale(param, *row.tolist()) for (param, _), row in zip(pairs, rows, strict=True)]


def mean_scale(layers: list[LayerScale]) -> float:
    """Mean of the scale over all elements of all layers."""
    sizes = [layer.param.numel() for layer in layers]
    return sum(layer.mean_scale * size for layer, size in zip(layers, sizes, strict=True)) / sum(sizes)


def step_ratio(layers: list[LayerScale]) -> float:
    """norm(s*m) / norm(m) over all layers taken together; 1 where there is no gradient."""
    total = sum(layer.norm_sq for layer in layers)
    return math.sqrt(sum(layer.scaled_norm_sq for layer in layers) / total) if total > 0.0 else 1.0


def scale_series(layers: list[LayerScale]) -> dict[str, float]:
    """What a log keeps of one step: mean scale and step ratio, and how the layers' mean scales spread.

    `scale_q10`, `scale_q50` and `scale_q90` are quantiles over layers, each layer counting once whatever its size.
    """
    means = torch.tensor([layer.mean_scale for layer in layers], dtype=torch.float64)
    low, middle, high = means.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
    whole = {"mean_scale": mean_scale(layers), "step_ratio": step_ratio(layers)}
    return whole | {"scale_q10": low, "scale_q50": middle, "scale_q90": high}


def _sums(param: Tensor, scale: Tensor | None) -> Tensor:
    assert param.grad is not None
    mean = param.grad.double()
    scale = torch.ones_like(mean) if scale is None else scale.double()
    return torch.stack([scale.mean(), (scale * mean).square().sum(), mean.square().sum()])
