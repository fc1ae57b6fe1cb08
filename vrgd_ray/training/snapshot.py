"""A copy of the training state in host memory, so that it can be written while training goes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Snapshot:
    """Copies nested dicts, lists and tuples of tensors into host buffers that are kept from one copy to the next.

    Memory touched for the first time costs more than the copy itself, so a long run pays that once. The copy before is
    overwritten: it must have been written by then.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], Tensor] = {}

    def take(self, state: Any) -> Any:
        """The same state with every tensor copied."""
        copy = self._copy(state, ())
        if any(buffer.is_pinned() for buffer in self._buffers.values()):
            torch.cuda.current_stream().synchronize()
        return copy

    def _copy(self, value: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(value, Tensor):
            return self._buffer(value, path).copy_(value.detach(), non_blocking=True)
        if isinstance(value, dict):
            return {key: self._copy(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._copy(item, (*path, number)) for number, item in enumerate(value))
        return value

    def _buffer(self, tensor: Tensor, path: tuple[Any, ...]) -> Tensor:
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(tensor, device="cpu", requires_grad=False, pin_memory=tensor.is_cuda)
            self._buffers[path] = buffer
        return buffer
