"""What LARS and LAMB share: the length of a layer's step in proportion to its weights."""

from __future__ import annotations

import torch
from torch import Tensor

from vrgd_ray.optim.layer import Group


def trust_ratio(group: Group, weights: Tensor, update: Tensor, denominator: Tensor) -> Tensor:
    """weights / denominator, but 1 where a layer has no weights or no update, or where the group opted out."""
    if not group["trust_ratio"]:
        return torch.ones_like(weights)
    return torch.where((weights > 0) & (update > 0), weights / denominator, 1.0)


def norms(tensors: list[Tensor]) -> Tensor:
    """Euclidean norms of several tensors, or of one flat one, as a vector."""
    if len(tensors) == 1 and tensors[0].ndim == 1:
        # On a CPU the dot product is several times as fast as a norm.
        return torch.dot(tensors[0], tensors[0]).sqrt()[None]
    return torch.stack(torch._foreach_norm(tensors))
