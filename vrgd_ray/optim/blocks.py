"""The fast path: the scale of many small layers at once, and of a large layer in pieces that stay in the cache.

A step is bound by memory traffic, not by arithmetic. Every block is therefore scaled and updated in one go, in one
reused buffer, and a layer is read twice at most: once for the mean of its ratio, once for the update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vrgd_ray.optim.gsnr import largest_ratio, mark_exceptions, scale_from_ratio
from vrgd_ray.optim.layer import Layer

SMALL = 2**15
"""Layers below this number of elements are handled together: calls would cost more than their arithmetic."""

BLOCK = {"cpu": 2**18, "cuda": 2**24}
"""Most elements of a block per kind of device (CPU: 1 MiB in float32, so that a few tensors fit the cache)."""


@dataclass(slots=True)
class Block:
    """A piece of one layer, or several small layers whole; the buffers that go with it are flat."""

    layers: list[Layer]
    start: int
    size: int

    @property
    def single(self) -> bool:
        """Whether the block belongs to one layer."""
        return len(self.layers) == 1

    def pieces(self, tensors: list[Tensor]) -> list[Tensor]:
        """The block's part of the layers' tensors (parameters, or one kind of state), as views."""
        return [self._cut(tensors[0])] if self.single else tensors

    def joined(self, tensors: list[Tensor]) -> Tensor:
        """The block's part of the layers' tensors as one flat tensor: a view of one layer, a copy of several."""
        return self._cut(tensors[0]) if self.single else torch.cat([tensor.view(-1) for tensor in tensors])

    def split(self, flat: Tensor) -> list[Tensor]:
        """Cut a flat buffer of the block's size into views that match `pieces`."""
        if self.single:
            return [flat]
        shapes = [layer.param.shape for layer in self.layers]
        parts = torch.split(flat, [shape.numel() for shape in shapes])
        return [part if len(shape) == 1 else part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def spread(self, values: Tensor) -> Tensor:
        """One value per layer, repeated for each of its elements."""
        return values if self.single else values.repeat_interleave(self.lengths(values.device), output_size=self.size)

    def lengths(self, device: torch.device) -> Tensor:
        """Number of elements of each layer."""
        return torch.tensor([layer.param.numel() for layer in self.layers], device=device)

    def _cut(self, tensor: Tensor) -> Tensor:
        return tensor.view(-1)[self.start : self.start + self.size]


def plain(layer: Layer) -> bool:
    """Whether the fast path applies: one type, contiguous, on a device that has torch's fused kernels."""
    tensors = [layer.param, layer.grad] + ([layer.variance] if layer.variance is not None else [])
    return (
        layer.param.device.type in BLOCK
        and layer.param.dtype in (torch.float32, torch.float64)
        and all(t.dtype == layer.param.dtype and t.is_contiguous() for t in tensors)
        and layer.param.numel() > 0
    )


def batches(layers: list[Layer]) -> Iterator[list[Layer]]:
    """Group successive small layers of equal kind; a large layer stands alone."""
    batch: list[Layer] = []
    size, kind = 0, None
    for layer in layers:
        numel = layer.param.numel()
        alike = (layer.param.device, layer.param.dtype, layer.step) == kind
        if batch and (not alike or numel >= SMALL or size + numel > BLOCK[layer.param.device.type]):
            yield batch
            batch, size = [], 0
        batch.append(layer)
        size, kind = size + numel, (layer.param.device, layer.param.dtype, layer.step)
        if numel >= SMALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def blocks(batch: list[Layer]) -> list[Block]:
    """Cut a batch so that a block fits the cache; several layers are never cut."""
    size = sum(layer.param.numel() for layer in batch)
    if len(batch) > 1:
        return [Block(batch, 0, size)]
    limit = BLOCK[batch[0].param.device.type]
    return [Block(batch, start, min(limit, size - start)) for start in range(0, size, limit)]


class BatchScale:
    """The GSNR scale of one batch of layers, written block by block.

    `buffer` is scratch; after the construction it holds mean/variance of a batch that is a single block, which `write`
    then need not compute again.
    """

    def __init__(self, batch: list[Layer], bounds: tuple[float, float], buffer: Tensor) -> None:
        self.bounds, self.buffer = bounds, buffer
        self.blocks = blocks(batch)
        self.largest = largest_ratio(batch[0].variance.dtype)  # type: ignore[union-attr]
        self.on_cpu = buffer.device.type == "cpu"
        self.exceptions = not self.on_cpu  # looking for them would make the host wait for the device
        self.per_mean = self._of_many(self.blocks[0]) if len(batch) > 1 else self._of_one()

    def write(self, block: Block, mean: Tensor, quotient: Tensor) -> Tensor:
        """Write the block's scale over `quotient`; `mean` is the block's mean gradient, flat."""
        if len(self.blocks) > 1:
            self._quotient(block, mean, quotient)
        if not self.exceptions and isinstance(self.per_mean, float):
            torch.addcmul(torch.zeros((), dtype=mean.dtype), quotient, mean, value=self.per_mean, out=quotient)
            return quotient.clamp_(*self.bounds)
        ratio = quotient.mul_(mean)
        if not self.exceptions:
            return ratio.mul_(self.per_mean).clamp_(*self.bounds)
        ratio.masked_fill_(ratio >= self.largest, math.inf)
        return scale_from_ratio(ratio, self.per_mean, *self.bounds)

    def _quotient(self, block: Block, mean: Tensor, out: Tensor) -> Tensor:
        variance = block.joined([layer.variance for layer in block.layers])  # type: ignore[misc]
        return torch.div(mean, variance, out=out)

    def _of_one(self) -> Tensor | float:
        """One over the mean ratio of a layer."""
        total: Tensor | float = 0.0
        number: Tensor | float = 0
        for block in self.blocks:
            mean = block.joined([block.layers[0].grad])
            quotient = self._quotient(block, mean, self.buffer[: block.size])
            # Ratios are not negative: a sum below the limit proves that each of them is, and that none is 0/0.
            part = torch.dot(quotient, mean).item() if self.on_cpu else math.nan
            if 0.0 < part < self.largest or (0.0 < part < math.inf and self._ordinary(quotient, mean)):
                total, number = total + part, number + block.size
                continue
            self.exceptions = True
            ordinary, count = mark_exceptions(quotient * mean, self.largest)
            total, number = total + ordinary, number + count
        if isinstance(total, float):
            return number / total
        return torch.as_tensor(number, device=total.device).clamp(min=1) / total

    def _ordinary(self, quotient: Tensor, mean: Tensor) -> bool:
        return bool((quotient * mean).amax() < self.largest)

    def _of_many(self, block: Block) -> Tensor:
        """One over the mean ratio of each of several small layers, repeated for each element."""
        mean = block.joined([layer.grad for layer in block.layers])
        lengths = block.lengths(mean.device)
        ratio = (self._quotient(block, mean, self.buffer) * mean).double()
        totals = torch.segment_reduce(ratio, "sum", lengths=lengths, unsafe=True)
        counts = lengths
        if not self.on_cpu or not bool(((totals > 0) & (totals < self.largest)).all()):
            self.exceptions = True
            ordinary = ratio < self.largest
            totals = torch.segment_reduce(torch.where(ordinary, ratio, 0.0), "sum", lengths=lengths, unsafe=True)
            counts = torch.segment_reduce(ordinary.double(), "sum", lengths=lengths, unsafe=True).clamp(min=1)
        return block.spread((counts / totals).to(mean.dtype))
