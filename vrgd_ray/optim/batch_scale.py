"""The GSNR scale on the fast path: the definition of `gsnr_scale`, in fewer passes over memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.gsnr import largest_ratio, mark_exceptions, scale_from_ratio


class BatchScale:
    """Writes the scaled gradient of a batch of layers into the blocks' buffers.

    Elements without gradient or without noise are rare, and looking for them costs as much as all the rest. Ratios are
    not negative: a sum below the limit of the noise-free proves that every ratio is, and that none is 0/0. Only where
    this fails, or could not be known without waiting for the device, are the exceptions looked for.
    """

    def __init__(self, parts: list[Block], bounds: tuple[float, float], averages: list[Tensor], share: float) -> None:
        self.bounds, self.averages, self.share = bounds, averages, share
        self.recompute = len(parts) > 1  # else the buffer keeps what was computed for the mean
        self.largest = largest_ratio(parts[0].buffer.dtype)
        self.on_cpu = parts[0].buffer.device.type == "cpu"
        self.exceptions = not self.on_cpu
        self.per_mean = self._of_one(parts) if parts[0].single else self._of_many(parts[0])

    def write(self, block: Block) -> None:
        """Write weight * mean into the block's buffer, the weight being the scale or its running mean."""
        weight = self._scale(block)
        if self.averages:
            torch._foreach_lerp_(block.pieces(self.averages), block.views, self.share)
            weight = block.joined("other", self.averages)
        torch.mul(weight, block.mean, out=block.buffer)

    def _scale(self, block: Block) -> Tensor:
        if self.recompute:
            divide(block)
        if isinstance(self.per_mean, float) and not self.exceptions:
            zero = torch.zeros((), dtype=block.mean.dtype)
            torch.addcmul(zero, block.buffer, block.mean, value=self.per_mean, out=block.buffer)
            return block.buffer.clamp_(*self.bounds)
        ratio = block.buffer.mul_(block.mean) if block.single else block.buffer
        if self.exceptions:
            ratio.masked_fill_(ratio >= self.largest, math.inf)
        block.multiply(self.per_mean)
        return scale_from_ratio(ratio, *self.bounds) if self.exceptions else ratio.clamp_(*self.bounds)

    def _of_one(self, parts: list[Block]) -> Tensor | float:
        """One over the mean ratio of a layer."""
        total: Tensor | float = 0.0
        number: Tensor | int = 0
        for block in parts:
            quotient, mean = divide(block), block.mean
            part = torch.dot(quotient, mean).item() if self.on_cpu else math.nan
            if 0.0 < part < self.largest or (0.0 < part < math.inf and bool((quotient * mean).amax() < self.largest)):
                total, number = total + part, number + mean.numel()
                continue
            self.exceptions = True
            ordinary, count = mark_exceptions(quotient * mean, self.largest)
            total, number = total + ordinary, number + count
        if isinstance(total, float):
            return number / total
        return torch.as_tensor(number, device=total.device).clamp(min=1) / total

    def _of_many(self, block: Block) -> Tensor:
        """One over the mean ratio of each of several layers; leaves the ratio in the buffer."""
        ratio = divide(block).mul_(block.mean)
        totals, counts = block.sums(ratio), block.lengths
        if not self.on_cpu or not bool(((totals > 0) & (totals < self.largest)).all()):
            self.exceptions = True
            ordinary = ratio < self.largest
            totals = block.sums(torch.where(ordinary, ratio, 0.0))
            counts = block.sums(ordinary.to(ratio.dtype)).clamp(min=1)
        return counts / totals


def divide(block: Block) -> Tensor:
    """Write mean / variance of the block into its buffer."""
    variances = [layer.variance for layer in block.layers if layer.variance is not None]
    return torch.div(block.mean, block.joined("other", variances), out=block.buffer)
