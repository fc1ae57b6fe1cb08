"""LAMB: Adam's direction, given a length in proportion to the layer's weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.adam import AdamLike
from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group, State
from vrgd_ray.optim.rules import adam_block_rule, adam_rule
from vrgd_ray.optim.trust import norms, trust_ratio


class LAMB(AdamLike):
    r"""LAMB (arXiv 1904.00962, alg. 2, with the identity for phi and bias correction).

        u = v1/(1 - b1^t) / (sqrt(v2/(1 - b2^t)) + eps) + weight_decay*theta
        theta -= lr * norm(theta)/norm(u) * u        (factor 1 if either norm is 0)

    Args:
        params: Parameters or parameter groups; every option below can be set per group, and `trust_ratio=False`
            replaces the factor by 1, as is customary for biases and normalisations (see `parameter_groups`).
        lr: Learning rate: relative change of a layer's weights per step.
        betas: Decay of the first and the second momentum, each in [0, 1).
        eps: Added to the denominator, gradient units.
        weight_decay: Decoupled weight decay, relative to Adam's direction; the default is the one used for BERT.
        maximize: Ascend instead of descend.
        trust_ratio: Whether the factor norm(theta)/norm(u) applies.
        foreach: False runs a plain loop over layers; None and True the fast path.

    State, float32 for half-precision parameters: `step`, `exp_avg`, `exp_avg_sq`.

    Raises:
        ConfigError: an option is out of its range.
    """

    layerwise = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, ...] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        trust_ratio: bool = True,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)

    # Adam with lr = -1 adds its direction to whatever it is given: here to weight_decay*theta.

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        direction = param * group["weight_decay"]
        adam_rule(group, direction, gradient, state, decoupled=False, lr=-1.0, weight_decay=0.0)
        weights, length = torch.linalg.vector_norm(param), torch.linalg.vector_norm(direction)
        param.sub_(direction.mul_(trust_ratio(group, weights, length, length) * group["lr"]))

    def _update_block(self, group: Group, block: Block) -> None:
        direction = block.scratch.take("direction", block.buffer.numel(), block.buffer)
        torch.mul(block.joined("other", [layer.param for layer in block.layers]), group["weight_decay"], out=direction)
        pieces = block.cut_up(direction)
        adam_block_rule(group, block, pieces, decoupled=False, lr=-1.0, weight_decay=0.0)
        block.buffer.copy_(direction)

    def _finish(self, group: Group, whole: Block) -> None:
        super()._finish(group, whole)
        length = norms(whole, whole.buffer)
        weights = norms(whole, whole.joined("other", [layer.param for layer in whole.layers]))
        whole.multiply(trust_ratio(group, weights, length, length) * group["lr"])
        torch._foreach_sub_(whole.params, whole.views)
