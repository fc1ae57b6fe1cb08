"""LARS: SGD with momentum, every layer's step in proportion to its weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group, State
from vrgd_ray.optim.rules import sgd_block_rule, sgd_rule
from vrgd_ray.optim.trust import norms, trust_ratio


class LARS(LayerOptimizer):
    r"""LARS (arXiv 1708.03888, alg. 1).

        ratio = trust_coefficient*norm(theta) / (norm(g) + weight_decay*norm(theta) + eps)
                (1 if norm(theta) or norm(g) is 0)
        d = ratio * (g + weight_decay*theta)
        buf = momentum*buf + d      (buf = d in the first step)
        theta -= lr*buf             (Nesterov: lr*(d + momentum*buf); without momentum: lr*d)

    Args:
        params: Parameters or parameter groups; every option below can be set per group, and `trust_ratio=False`
            replaces the ratio by 1, as is customary for biases and normalisations (see `parameter_groups`).
        lr: Learning rate, unit-free: `lr*trust_coefficient` is about the relative change of a layer per step.
        momentum: Momentum factor in [0, 1), unit-free.
        weight_decay: Weight decay inside the gradient and the ratio.
        trust_coefficient: The paper's eta, unit-free.
        eps: Added to the denominator, gradient units.
        nesterov: Nesterov momentum.
        maximize: Ascend instead of descend.
        trust_ratio: Whether the ratio applies.
        foreach: False runs a plain loop over layers; None and True the fast path.

    State, float32 for half-precision parameters: `momentum_buffer`.

    Raises:
        ConfigError: an option is out of its range.
    """

    layerwise = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        *,
        nesterov: bool = False,
        maximize: bool = False,
        trust_ratio: bool = True,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        if group["maximize"]:
            gradient = -gradient
        ratio = _ratio(group, torch.linalg.vector_norm(param), torch.linalg.vector_norm(gradient))
        direction = gradient.add(param, alpha=group["weight_decay"]).mul_(ratio)
        sgd_rule(group, param, direction, state, weight_decay=0.0, maximize=False)

    def _update_block(self, group: Group, block: Block) -> None:
        if group["maximize"]:
            block.buffer.neg_()

    def _finish(self, group: Group, whole: Block) -> None:
        params = whole.joined("other", [layer.param for layer in whole.layers])
        ratio = _ratio(group, norms(whole, params), norms(whole, whole.buffer))
        whole.buffer.add_(params, alpha=group["weight_decay"])
        whole.multiply(ratio)
        sgd_block_rule(group, whole, weight_decay=0.0, maximize=False)


def _ratio(group: Group, weights: Tensor, update: Tensor) -> Tensor:
    denominator = (update + group["weight_decay"] * weights + group["eps"]) / group["trust_coefficient"]
    return trust_ratio(group, weights, update, denominator)
