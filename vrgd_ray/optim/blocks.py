"""The fast path: the scale of many small layers at once, and of a large layer in pieces that stay in the cache.

A step is bound by memory traffic, not by arithmetic. Every block is therefore scaled and updated in one go, in one
reused buffer, and a layer is read twice at most: once for the mean of its ratio, once for the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vrgd_ray.optim.layer import Layer

SMALL = 2**15
"""Layers below this number of elements are handled together: calls would cost more than their arithmetic."""

TINY = 2**10
"""Layers of fewer elements on average are not even worth a call each."""

BLOCK = {"cpu": 2**18, "cuda": 2**24}
"""Most elements of a block per kind of device (CPU: 1 MiB in float32, so that a few tensors fit the cache)."""


@dataclass(slots=True)
class Block:
    """A piece of one layer, or several small layers whole, with a buffer for what is computed of it."""

    layers: list[Layer]
    start: int
    buffer: Tensor
    """Flat scratch of the block's size: first the scale, then the scaled gradient or the direction of the step."""
    views: list[Tensor]
    """The buffer cut and shaped like `pieces`."""

    @property
    def single(self) -> bool:
        """Whether the block belongs to one layer."""
        return len(self.layers) == 1

    @property
    def params(self) -> list[Tensor]:
        """The block's part of the parameters, as views."""
        return self.pieces([layer.param for layer in self.layers])

    def pieces(self, tensors: list[Tensor]) -> list[Tensor]:
        """The block's part of one tensor per layer, as views."""
        return [self._cut(tensors[0])] if self.single else tensors

    def joined(self, tensors: list[Tensor]) -> Tensor:
        """The block's part of one tensor per layer as one flat tensor: a view of one layer, a copy of several."""
        return self._cut(tensors[0]) if self.single else torch.cat([tensor.view(-1) for tensor in tensors])

    @property
    def lengths(self) -> Tensor:
        """Number of elements of each layer's part."""
        return torch.tensor([view.numel() for view in self.views], device=self.buffer.device)

    def sums(self, flat: Tensor) -> Tensor:
        """Sum of each layer's part of a flat tensor that is not negative."""
        if flat.device.type != "cpu":
            return torch.stack(torch._foreach_norm(split(flat, self.layers), 1))
        if self._tiny:
            return torch.segment_reduce(flat, "sum", lengths=self.lengths, unsafe=True)
        return torch.stack([part.sum() for part in split(flat, self.layers)])

    def multiply(self, values: Tensor | float) -> None:
        """Multiply the buffer, in place, by one value per layer, or by one for all."""
        if isinstance(values, float) or values.ndim == 0:
            self.buffer.mul_(values)
        elif self._tiny or values.device.type != "cpu":
            self.buffer.mul_(values.repeat_interleave(self.lengths, output_size=self.buffer.numel()))
        else:
            torch._foreach_mul_(self.views, values.tolist())

    @property
    def _tiny(self) -> bool:
        """Whether a call per layer would cost more than another pass over all elements."""
        return self.buffer.numel() < TINY * len(self.layers)

    def _cut(self, tensor: Tensor) -> Tensor:
        return tensor.view(-1)[self.start : self.start + self.buffer.numel()]


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


def blocks(batch: list[Layer], *, whole_buffer: bool) -> tuple[Block, list[Block]]:
    """Return the batch as one block, and cut into blocks that fit the cache; several layers are never cut.

    The blocks of a layer share one buffer, or with `whole_buffer` have consecutive parts of one as large as the layer.
    """
    first, size = batch[0].param, sum(layer.param.numel() for layer in batch)
    limit = BLOCK[first.device.type] if len(batch) == 1 else size
    buffer = torch.empty(size if whole_buffer else min(size, limit), dtype=first.dtype, device=first.device)
    if size <= limit:
        whole = Block(batch, 0, buffer, split(buffer, batch) if len(batch) > 1 else [buffer])
        return whole, [whole]
    starts = range(0, size, limit)
    parts = [buffer[start if whole_buffer else 0 :][: min(limit, size - start)] for start in starts]
    blocks = [Block(batch, start, part, [part]) for start, part in zip(starts, parts, strict=True)]
    return Block(batch, 0, buffer, [buffer]), blocks


def split(flat: Tensor, layers: list[Layer]) -> list[Tensor]:
    """Cut a flat tensor into views shaped like the layers' parameters."""
    shapes = [layer.param.shape for layer in layers]
    parts = torch.split(flat, [shape.numel() for shape in shapes])
    return [part if len(shape) == 1 else part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
