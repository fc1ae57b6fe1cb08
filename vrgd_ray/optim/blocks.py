"""The fast path's blocks: many small layers at once, and large layers in pieces that stay in the cache.

A step is bound by memory traffic, not by arithmetic. Every block is therefore scaled and updated in one go, in
reused buffers, and a layer is read twice at most: once for the mean of its ratio, once for the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vrgd_ray.optim.layer import Layer

LARGE = 2**15
"""Layers of at least this number of elements stand alone; handling others together saves calls."""

TINY = 2**10
"""Layers of fewer elements, on average of a block, are not even worth a call each."""

TOGETHER = {"cpu": 2**16, "cuda": 2**22}
"""Most elements of small layers in one block, per kind of device."""

PIECE = {"cpu": 2**18, "cuda": 2**24}
"""Most elements of a piece of a large layer, per kind of device."""


class Scratch:
    """Flat buffers reused by all blocks of a step: fresh memory would cost as much as the arithmetic on it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, name: str, size: int, like: Tensor) -> Tensor:
        """A buffer of the name, with type and device of `like`; its contents are whatever was there."""
        key = (name, like.dtype, like.device)
        if key not in self._buffers or self._buffers[key].numel() < size:
            self._buffers[key] = torch.empty(size, dtype=like.dtype, device=like.device)
        return self._buffers[key][:size]

    def join(self, name: str, tensors: list[Tensor]) -> Tensor:
        """Copy contiguous tensors one behind the other."""
        flat = [tensor.view(-1) for tensor in tensors]
        return torch.cat(flat, out=self.take(name, sum(map(len, flat)), flat[0]))


@dataclass
class Block:
    """A piece of one layer, or several small layers whole."""

    layers: list[Layer]
    start: int
    """Where the piece starts in the flattened layer."""
    buffer: Tensor
    """Flat: in turn the ratio, the scale, and the scaled gradient or the direction of the step."""
    views: list[Tensor]
    """The buffer cut and shaped like `pieces`."""
    scratch: Scratch

    @cached_property
    def mean(self) -> Tensor:
        """Mean gradient, flat."""
        return self.joined("mean", [layer.grad for layer in self.layers])

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
        return [cut(tensors[0], self.start, self.buffer)] if self.single else tensors

    def joined(self, name: str, tensors: list[Tensor]) -> Tensor:
        """The block's part of one tensor per layer as one flat tensor: a view of one layer, a copy of several."""
        return self.pieces(tensors)[0] if self.single else self.scratch.join(name, tensors)

    def cut_up(self, flat: Tensor) -> list[Tensor]:
        """A flat tensor of the block's size, cut and shaped like `pieces`."""
        return [flat] if self.single else split(flat, self.layers)

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
        return self.buffer.numel() < TINY * len(self.layers)


def plain(layer: Layer) -> bool:
    """Whether the fast path applies: one type, contiguous, on a device that has torch's fused kernels.

    The state is looked at too: it may have been loaded, or the model turned to another type since. Everything else is
    left to torch's own operations, which handle it or refuse it.
    """
    param = layer.param
    dtype, numel = param.dtype, param.numel()
    if param.device.type not in PIECE or dtype not in (torch.float32, torch.float64) or numel == 0:
        return False
    # One loop without calls of our own: it runs for every layer in every step.
    for name, value in (("param", param), ("grad", layer.grad), ("variance", layer.variance), *layer.state.items()):
        if not isinstance(value, Tensor) or name == "step":
            continue
        if value.dtype is not dtype or value.numel() != numel or not value.is_contiguous():
            return False
    return True


def batches(layers: list[Layer]) -> Iterator[list[Layer]]:
    """Group successive small layers of equal kind; a large layer stands alone."""
    batch: list[Layer] = []
    size, kind = 0, None
    for layer in layers:
        numel, new_kind = layer.param.numel(), (layer.param.device, layer.param.dtype, layer.step)
        if batch and (new_kind != kind or numel >= LARGE or size + numel > TOGETHER[layer.param.device.type]):
            yield batch
            batch, size = [], 0
        batch.append(layer)
        size, kind = (size + numel if numel < LARGE else TOGETHER[layer.param.device.type]), new_kind
    if batch:
        yield batch


def blocks(batch: list[Layer], scratch: Scratch, *, whole_buffer: bool) -> tuple[Block, list[Block]]:
    """Return the batch as one block, and cut into blocks that fit the cache; several layers are never cut.

    The blocks of a layer share one buffer, or with `whole_buffer` have consecutive parts of one as large as the layer.
    """
    grads, size = [layer.grad for layer in batch], sum(layer.grad.numel() for layer in batch)
    limit = PIECE[grads[0].device.type] if len(batch) == 1 else size
    buffer = scratch.take("buffer", size if whole_buffer else min(size, limit), grads[0])
    if len(batch) > 1:
        whole = Block(batch, 0, buffer, split(buffer, batch), scratch)
        return whole, [whole]
    parts = []
    for start in range(0, size, limit):
        part = buffer[start if whole_buffer else 0 :][: min(limit, size - start)]
        parts.append(Block(batch, start, part, [part], scratch))
    return Block(batch, 0, buffer, [buffer], scratch), parts


def cut(tensor: Tensor, start: int, part: Tensor) -> Tensor:
    """The piece of a layer that a part of its buffer stands for, flat."""
    return tensor.view(-1)[start : start + part.numel()]


def split(flat: Tensor, layers: list[Layer]) -> list[Tensor]:
    """Cut a flat tensor into views shaped like the layers' parameters."""
    shapes = [layer.param.shape for layer in layers]
    parts = torch.split(flat, [shape.numel() for shape in shapes])
    return [part if len(shape) == 1 else part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
