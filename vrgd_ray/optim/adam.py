"""What VR-Adam, VR-AdamW and VR-LAMB share: momenta and a running mean of the scale."""

from __future__ import annotations

import torch
from torch import Tensor

from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.kernels import adam_steps
from vrgd_ray.optim.layer import SCALE_AVERAGE, Group, Layer, State, scaled
from vrgd_ray.optim.native import wanted
from vrgd_ray.optim.rules import adam_block_rule, adam_rule, count_step


class AdamLike(LayerOptimizer):
    """Adam on g^ = p^*m, with p^ the bias-corrected running mean of the scale; subclasses choose the weight decay.

    Stored is p^ rather than p. It starts from ones, "no scale so far", which a new layer's first step forgets.
    """

    decoupled = False
    state_names = frozenset({"step", "exp_avg", "exp_avg_sq", SCALE_AVERAGE})

    def _prepare(self, group: Group, layer: Layer, dtype: torch.dtype) -> None:
        state = layer.state
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(layer.param, dtype=dtype)
            state["exp_avg_sq"] = torch.zeros_like(layer.param, dtype=dtype)
        if SCALE_AVERAGE not in state and scaled(group):
            state[SCALE_AVERAGE] = torch.ones_like(layer.param, dtype=dtype)
        layer.step = int(state["step"].item()) + 1

    def _step_fast(self, group: Group, layers: list[Layer]) -> None:
        if scaled(group) and wanted(layers):
            native = [layer for layer in layers if layer.param.device.type == "cpu"]
            layers = [layer for layer in layers if layer.param.device.type != "cpu"]
            adam_steps(group, native, decoupled=self.decoupled or self.layerwise, layerwise=self.layerwise)
            count_step(native)
        super()._step_fast(group, layers)

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        adam_rule(group, param, gradient, state, decoupled=self.decoupled)

    def _update_block(self, group: Group, block: Block) -> None:
        adam_block_rule(group, block, block.params, decoupled=self.decoupled)

    def _finish(self, group: Group, whole: Block) -> None:
        count_step(whole.layers)
