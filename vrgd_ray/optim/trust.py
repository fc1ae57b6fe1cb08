"""What LARS and LAMB share: the length of a layer's step in proportion to its weights."""

from __future__ import annotations

import torch
from torch import Tensor

from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group


def trust_ratio(group: Group, weights: Tensor, update: Tensor, denominator: Tensor) -> Tensor:
    """weights / denominator, but 1 where a layer has no weights or no update, or where the group opted out."""
    if not group["trust_ratio"]:
        return torch.ones_like(weights)
    return torch.where((weights > 0) & (update > 0), weights / denominator, 1.0)


def norms(block: Block, flat: Tensor) -> Tensor:
    """Euclidean norm of each layer's part of a flat tensor of the block's size, as a vector."""
    if block.single:
        return torch.dot(flat, flat).sqrt()[None]  # on a CPU several times as fast as a norm
    return block.sums(flat.square()).sqrt()
