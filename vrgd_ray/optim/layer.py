"""One parameter tensor in one optimizer step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Group = dict[str, Any]
State = dict[str, Any]


LOW = (torch.bfloat16, torch.float16)
"""Types whose state is kept in float32."""

SCALE_AVERAGE = "scale_avg"
"""State of Adam kinds: p^, the bias-corrected running mean of the scale."""


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
        return torch.float32 if wide and self.param.dtype in LOW else self.param.dtype


def scaled(group: Group) -> bool:
    """Whether the GSNR scale is on for the group."""
    lower, upper = group.get("gsnr_bounds", (1.0, 1.0))
    return not lower == upper == 1.0


def elementwise(state: State) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a layer's state that hold a value for each of its elements."""
    return ((name, value) for name, value in state.items() if name != "step" and isinstance(value, Tensor))


def newest_share(group: Group, layer: Layer) -> float:
    """Weight of the newest scale in its bias-corrected running mean.

    p = b3*p + (1-b3)*s and p^ = p/(1 - b3^t) are together p^ += (1-b3)/(1-b3^t) * (s - p^).
    """
    beta3 = group["betas"][2]
    share: float = (1.0 - beta3) / (1.0 - beta3**layer.step)
    return share
