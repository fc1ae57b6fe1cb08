"""One parameter tensor in one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Group = dict[str, Any]
State = dict[str, Any]


@dataclass(slots=True)
class Layer:
    """One parameter tensor that takes part in a step, with everything the step reads and writes."""

    param: Tensor
    grad: Tensor
    """Mean gradient over the groups."""
    variance: Tensor | None
    """Population variance of the gradient over the groups; None where the scale is off."""
    state: State
    index: int
    """Place of the parameter among all parameters of the optimizer."""
    step: int = 0
    """Steps the layer's state has seen, this one included, where the rule counts them."""

    def dtype(self, *, wide: bool) -> torch.dtype:
        """Type of the state and of the arithmetic; `wide` is float32 for half-precision parameters."""
        low = self.param.dtype in (torch.bfloat16, torch.float16)
        return torch.float32 if wide and low else self.param.dtype


def scaled(group: Group) -> bool:
    """Whether the GSNR scale is on for the group."""
    lower, upper = group.get("gsnr_bounds", (1.0, 1.0))
    return not lower == upper == 1.0
