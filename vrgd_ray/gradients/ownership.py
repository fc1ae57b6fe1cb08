"""Whether memory can be edited in place: autograd may still need what lies in a gradient's."""

from __future__ import annotations

import torch
from torch import Tensor


def users(tensor: Tensor) -> int:
    """Number of users of a tensor's memory, the call's own included."""
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


_ONE = users(torch.empty(1))


def owned(tensor: Tensor) -> bool:
    """Whether no other tensor shares this one's memory.

    Autograd hands out views: what `x + w.view(shape)` gets as gradient is at once that of `x`, which is still on its
    way to whatever made `x`, and as a view the `.grad` of `w`.
    """
    return users(tensor) == _ONE
