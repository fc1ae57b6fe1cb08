"""Running statistics of batch normalisation, updated once a step from all groups of all workers.

Left to itself, a normalisation layer updates them in every forward pass: the result would depend on the order of the
groups and on which worker computed them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vrgd_ray.config import require


@dataclass
class _Layer:
    """A layer's statistics before the step, and their sums over the groups of the step."""

    momentum: float | None
    before: list[Tensor]
    tracked: Tensor
    sums: Tensor
    count: int = 0


class RunningStatistics:
    """Collects the statistics of every group, and after the step sets

        running = (1 - momentum) * running + momentum * mean over the groups of the group's statistic

    with the layer's own momentum, or 1 / steps where that is None; `num_batches_tracked` counts steps. A layer in eval
    mode keeps what it has.

    Raises:
        ConfigError: the model synchronises its normalisation between workers, so that its result depends on them.
    """

    def __init__(self, model: nn.Module, world_size: int) -> None:
        require(
            not any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()),
            "SyncBatchNorm makes the result depend on the number of workers; use BatchNorm, which takes groups singly.",
        )
        self.world_size = world_size
        self._modules: list[Any] = [
            m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None
        ]
        for module in self._modules:
            module.register_forward_hook(self._collect)
        self._layers: dict[Any, _Layer] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Wrap all groups of one step."""
        self._layers = {module: _open(module) for module in self._modules}
        try:
            yield
            for module, layer in self._layers.items():
                self._combine(module, layer)
        finally:
            for module, layer in self._layers.items():
                module.momentum = layer.momentum
            self._layers = {}

    @torch.no_grad()
    def _collect(self, module: nn.Module, inputs: Any, output: Any) -> None:
        layer = self._layers.get(module)
        if layer is not None and module.training:
            layer.sums += torch.stack(_buffers(module))  # in float64, so that the order hardly matters
            layer.count += 1

    @torch.no_grad()
    def _combine(self, module: Any, layer: _Layer) -> None:
        mean = self._mean_over_groups(layer)
        if mean is None:
            return
        factor = 1 / (layer.tracked + 1) if layer.momentum is None else layer.momentum
        for buffer, before, statistic in zip(_buffers(module), layer.before, mean, strict=True):
            buffer.copy_((1 - factor) * before + factor * statistic.to(buffer.dtype))
        module.num_batches_tracked.copy_(layer.tracked + 1)

    def _mean_over_groups(self, layer: _Layer) -> Tensor | None:
        """Mean over the groups of all workers, shape [2, features]; None for a layer no worker used."""
        if self.world_size == 1:
            return layer.sums / layer.count if layer.count else None
        packed = torch.cat([layer.sums.flatten(), layer.sums.new_tensor([float(layer.count)])])
        dist.all_reduce(packed)
        return (packed[:-1] / packed[-1]).view_as(layer.sums) if packed[-1] > 0 else None


def _open(module: Any) -> _Layer:
    before = [buffer.clone() for buffer in _buffers(module)]
    sums = torch.zeros_like(torch.stack(before), dtype=torch.float64)
    layer = _Layer(module.momentum, before, module.num_batches_tracked.clone(), sums)
    # With momentum 1 a forward pass leaves the group's own statistics in the buffers.
    module.momentum = 1.0
    return layer


def _buffers(module: Any) -> list[Tensor]:
    return [module.running_mean, module.running_var]
