"""What VR-Adam, VR-AdamW and VR-LAMB share: momenta and a running mean of the scale."""

from __future__ import annotations

import torch
from torch import Tensor

from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group, Layer, State, scaled
from vrgd_ray.optim.rules import adam_block_rule, adam_rule, count_step


class AdamLike(LayerOptimizer):
    """Adam on g^ = p^*m, with p^ the bias-corrected running mean of the scale; subclasses choose the weight decay.

    Stored is p^, not p: p = b3*p + (1-b3)*s is p^ += (1-b3)/(1-b3^t) * (s - p^). It starts from ones, "no scale so
    far", which a new layer's first step forgets, its weight being 1.
    """

    decoupled = False

    def _prepare(self, group: Group, layer: Layer, dtype: torch.dtype) -> None:
        state = layer.state
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(layer.param, dtype=dtype)
            state["exp_avg_sq"] = torch.zeros_like(layer.param, dtype=dtype)
        if "scale_avg" not in state and scaled(group):
            state["scale_avg"] = torch.ones_like(layer.param, dtype=dtype)
        layer.step = int(state["step"].item()) + 1

    def _weight(self, group: Group, scale: Tensor, layer: Layer) -> Tensor:
        average: Tensor = layer.state["scale_avg"]
        return average.lerp_(scale.to(average.dtype), _newest_share(group, layer))

    def _weight_block(self, group: Group, block: Block) -> Tensor:
        averages = [layer.state["scale_avg"] for layer in block.layers]
        torch._foreach_lerp_(block.pieces(averages), block.views, _newest_share(group, block.layers[0]))
        return block.joined("other", averages)

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        adam_rule(group, param, gradient, state, decoupled=self.decoupled)

    def _update_block(self, group: Group, block: Block) -> None:
        adam_block_rule(group, block, block.params, decoupled=self.decoupled)

    def _finish(self, group: Group, whole: Block) -> None:
        count_step(whole)


def _newest_share(group: Group, layer: Layer) -> float:
    beta3 = group["betas"][2]
    share: float = (1.0 - beta3) / (1.0 - beta3**layer.step)
    return share
