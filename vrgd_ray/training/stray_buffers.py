"""Buffers that a forward pass changes, besides those of batch normalisation: what the loop cannot keep alike."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class StrayBuffers:
    """Notes the buffers of a model before its first step, to find out which of them the step changes."""

    def __init__(self, module: nn.Module) -> None:
        cared_for = {id(b) for part in module.modules() if isinstance(part, _BatchNorm) for b in part.buffers()}
        self._live = {name: buffer for name, buffer in module.named_buffers() if id(buffer) not in cared_for}
        self._before = {name: buffer.clone() for name, buffer in self._live.items()}

    def report(self, say: Callable[[str], None]) -> None:
        """After the first step, name the buffers that changed; nothing later."""
        changed = [name for name, buffer in self._live.items() if not _same(buffer, self._before[name])]
        self._live, self._before = {}, {}
        if changed:
            say(
                f"The model changes {', '.join(changed)} in its forward pass. Every worker keeps its own, so the "
                "result depends on the number of workers. Spectral normalisation does this, and instance normalisation "
                "with running statistics; batch normalisation does not."
            )


def _same(buffer: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether nothing has changed; what was NaN and still is has not."""
    return buffer.shape == before.shape and torch.allclose(buffer, before, rtol=0, atol=0, equal_nan=True)
