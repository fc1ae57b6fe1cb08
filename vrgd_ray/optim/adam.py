"""What VR-Adam, VR-AdamW and VR-LAMB share: momenta and a running mean of the scale."""

from __future__ import annotations

from torch import Tensor

from vrgd_ray.optim.base import Group, LayerOptimizer, State, scaled
from vrgd_ray.optim.rules import adam_rule, prepare_adam, smooth_scale


class AdamLike(LayerOptimizer):
    """Adam on g^ = p^*m, with p^ the bias-corrected running mean of the scale; subclasses choose the weight decay."""

    decoupled = False

    def _prepare(self, group: Group, param: Tensor, state: State) -> None:
        prepare_adam(group, param, state, smooth=scaled(group))

    def _weight(self, group: Group, scale: Tensor, state: State) -> Tensor:
        return smooth_scale(group, scale, state)

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        adam_rule(group, param, gradient, state, decoupled=self.decoupled)
