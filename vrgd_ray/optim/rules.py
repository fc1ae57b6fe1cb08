"""The update rules of torch's SGD and Adam on one layer, called so that the arithmetic is torch's own to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

Group = dict[str, Any]
State = dict[str, Any]


def prepare_adam(group: Group, param: Tensor, state: State, *, smooth: bool) -> None:
    """Create step count, momenta and, with `smooth`, the running mean of the scale.

    The running mean starts from ones, "no scale so far"; its first weight is 1 in a new layer, which forgets them.
    """
    if "step" not in state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = torch.zeros_like(param)
        state["exp_avg_sq"] = torch.zeros_like(param)
    if smooth and "scale_avg" not in state:
        state["scale_avg"] = torch.ones_like(param)


def smooth_scale(group: Group, scale: Tensor, state: State) -> Tensor:
    """Move the bias-corrected running mean of the scale, p^ = p / (1 - b3^t), one step on and return it.

    p = b3*p + (1-b3)*s with p^ stored in place of p is p^ += (1-b3) / (1-b3^t) * (s - p^).
    """
    beta3, step = group["betas"][2], state["step"].item() + 1
    average: Tensor = state["scale_avg"]
    return average.lerp_(scale.to(average.dtype), (1.0 - beta3) / (1.0 - beta3**step))


def adam_rule(group: Group, param: Tensor, gradient: Tensor, state: State, *, decoupled: bool, **changes: Any) -> None:
    """Apply Adam, or AdamW if decoupled, as `torch.optim.AdamW(foreach=False)` does."""
    options = {**group, **changes}
    adam(
        [param],
        [gradient],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        foreach=False,
        fused=False,
        amsgrad=False,
        beta1=options["betas"][0],
        beta2=options["betas"][1],
        lr=options["lr"],
        weight_decay=options["weight_decay"],
        eps=options["eps"],
        maximize=options["maximize"],
        decoupled_weight_decay=decoupled,
    )


def sgd_rule(group: Group, param: Tensor, gradient: Tensor, state: State, **changes: Any) -> None:
    """Apply SGD with momentum, as `torch.optim.SGD(foreach=False)` does."""
    options = {**group, **changes}
    buffers = [state.get("momentum_buffer")]
    sgd(
        [param],
        [gradient],
        buffers,
        foreach=False,
        fused=False,
        weight_decay=options["weight_decay"],
        momentum=options["momentum"],
        lr=options["lr"],
        dampening=0.0,
        nesterov=options["nesterov"],
        maximize=options["maximize"],
    )
    if buffers[0] is not None:
        state["momentum_buffer"] = buffers[0]
