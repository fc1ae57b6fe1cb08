"""The rules of SGD and Adam: on one layer in torch's plain arithmetic, to the bit; on blocks by its fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group, Layer, State


def sgd_rule(group: Group, param: Tensor, gradient: Tensor, state: State, **changes: Any) -> None:
    """Apply SGD with momentum to a layer, as `torch.optim.SGD(foreach=False)` does; `changes` override the group."""
    buffers = [state.get("momentum_buffer")]
    options = _sgd_options({**group, **changes})
    sgd([param], [gradient], buffers, foreach=False, fused=False, **options)
    if buffers[0] is not None:
        state["momentum_buffer"] = buffers[0]


def sgd_block_rule(group: Group, block: Block, **changes: Any) -> None:
    """Apply SGD with momentum to a block, its gradient being in the buffer."""
    options = _sgd_options({**group, **changes})
    # A buffer of zeros makes the first step like any other: 0*momentum + d.
    buffers = [_buffer(layer.state, layer.param) for layer in block.layers] if options["momentum"] else []
    pieces = block.pieces(buffers) if buffers else []
    torch._fused_sgd_(block.params, block.views, pieces, is_first_step=False, **options)


def _buffer(state: State, param: Tensor) -> Tensor:
    if state.get("momentum_buffer") is None:
        state["momentum_buffer"] = torch.zeros_like(param)
    buffer: Tensor = state["momentum_buffer"]
    return buffer


def _sgd_options(group: Group) -> dict[str, Any]:
    names = ("weight_decay", "momentum", "nesterov", "maximize")
    return {"lr": float(group["lr"]), "dampening": 0.0, **{name: group[name] for name in names}}


def adam_rule(group: Group, param: Tensor, gradient: Tensor, state: State, *, decoupled: bool, **changes: Any) -> None:
    """Apply Adam, or AdamW if decoupled, to a layer, as `torch.optim.Adam(foreach=False)` does."""
    momenta = [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]]  # type: ignore[var-annotated]
    options = _adam_options({**group, **changes})
    adam([param], [gradient], *momenta, foreach=False, fused=False, decoupled_weight_decay=decoupled, **options)


def adam_block_rule(group: Group, block: Block, params: list[Tensor], *, decoupled: bool, **changes: Any) -> None:
    """Apply Adam, or AdamW if decoupled, to `params`, the gradient being in the block's buffer.

    `count_step` comes after the last block of a layer.
    """
    step = torch.tensor(float(block.layers[0].step), device=block.buffer.device)
    momenta = [block.pieces([layer.state[name] for layer in block.layers]) for name in ("exp_avg", "exp_avg_sq")]
    rule: Callable[..., None] = torch._fused_adamw_ if decoupled else torch._fused_adam_
    rule(params, block.views, *momenta, [], [step] * len(params), **_adam_options({**group, **changes}))


def count_step(layers: list[Layer]) -> None:
    """Advance the step count of every layer."""
    # A tensor as summand: adding a number costs four times as much.
    torch._foreach_add_([layer.state["step"] for layer in layers], torch.tensor(1.0))


def _adam_options(group: Group) -> dict[str, Any]:
    beta1, beta2 = group["betas"][:2]
    names = ("weight_decay", "eps", "maximize")
    return {"lr": float(group["lr"]), "beta1": beta1, "beta2": beta2, "amsgrad": False} | {n: group[n] for n in names}
