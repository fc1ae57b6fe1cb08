"""The GSNR scale of one layer: which elements of a mean gradient to trust, from mean and variance over its groups."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import torch
from torch import Tensor

NOISE_FREE_EPSILONS = 8
"""An element whose variance is at most this many machine epsilons of its mean square counts as free of noise."""

CONTROLS = (None, "constant", "shuffled")
"""Values of `gsnr_control`: the scale itself, its layer mean, or its elements in random places of the layer."""


def gsnr_scale(mean: Tensor, var: Tensor, bounds: Iterable[float] = (0.1, 1.0)) -> Tensor:
    """Scale of every element of one layer (arXiv 2309.13681, alg. 1 and eq. 7-9).

        r = mean^2 / var,   scale = clip(r / layer mean of r, lower, upper)

    Elements without any gradient (mean = var = 0) get clip(1, lower, upper), elements without noise get `upper`;
    neither enters the layer mean of r.

    Args:
        mean: Mean of the group gradients, any shape.
        var: Population variance over the groups (divisor k), same shape; its dtype decides what counts as noise-free.
        bounds: Lower and upper bound, unit-free. (1, 1) switches the scale off: ones, whatever the inputs.

    Returns:
        The scale, unit-free, in [lower, upper], shape of `mean`.
    """
    lower, upper = bounds
    if lower == upper == 1.0:
        return torch.ones_like(var)
    ratio = mean / var * mean
    total, count = mark_exceptions(ratio, largest_ratio(var.dtype))
    return scale_from_ratio(ratio.mul_(count.clamp(min=1) / total), lower, upper)


def largest_ratio(dtype: torch.dtype) -> float:
    """GSNR from which on an element counts as free of noise: var <= t * (mean^2 + var), solved for mean^2 / var."""
    tolerance = NOISE_FREE_EPSILONS * torch.finfo(dtype).eps
    return (1.0 - tolerance) / tolerance


def mark_exceptions(ratio: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """Mark noise-free elements as infinite, in place, and return sum and number of the elements that are ordinary.

    Elements without gradient are not-a-number already, being 0/0.
    """
    noise_free = ratio >= largest
    ordinary = ratio < largest
    total = torch.where(ordinary, ratio, 0.0).sum()
    ratio.masked_fill_(noise_free, math.inf)
    return total, ordinary.sum()


def scale_from_ratio(ratio: Tensor, lower: float, upper: float) -> Tensor:
    """Turn a marked ratio, divided by its layer mean, into the scale, in place."""
    return ratio.nan_to_num_(nan=1.0, posinf=math.inf).clamp_(lower, upper)


def apply_control(scale: Tensor, control: str | None, key: tuple[int, ...]) -> Tensor:
    """Replace a layer's scale by the one of a control arm.

    "constant" keeps the layer's mean and so the step length, "shuffled" also the distribution; both lose which element
    is noisy. `key` (seed, step, layer) determines the permutation, the same on every worker and device.
    """
    if control == "constant":
        return scale.mean().expand_as(scale)
    if control == "shuffled":
        return scale.flatten()[_permutation(scale.numel(), key).to(scale.device)].view(scale.shape)
    return scale


def _permutation(size: int, key: tuple[int, ...]) -> Tensor:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=7).digest()
    return torch.randperm(size, generator=torch.Generator().manual_seed(int.from_bytes(digest, "big")))
