"""SGD, with or without momentum, on gradients scaled by their signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.optim.optimizer import ParamsT

from vrgd_ray.config import require
from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.layer import Group, State
from vrgd_ray.optim.rules import sgd_block_rule, sgd_rule


class VRSGD(LayerOptimizer):
    r"""VR-SGD and VR-Momentum (arXiv 2309.13681, alg. 1 and app. D).

        d = s*m + weight_decay*theta
        buf = momentum*buf + d      (buf = d in the first step)
        theta -= lr*buf             (Nesterov: lr*(d + momentum*buf); without momentum: lr*d)

    with m the mean gradient over the groups, `.grad`, and s the scale (see `gsnr_scale`) from m and `.grad_var`, both
    as `GradientMoments` leaves them. Bounds (1, 1) are `torch.optim.SGD`, bit for bit with `foreach=False`.

    Args:
        params: Parameters or parameter groups; every option below can be set per group.
        lr: Learning rate, parameter units per gradient unit.
        momentum: Momentum factor in [0, 1), unit-free.
        nesterov: Nesterov momentum; needs a momentum.
        weight_decay: Coupled weight decay (inside the gradient), per step and unit of lr.
        gsnr_bounds: Interval of the scale, unit-free; the default is the paper's, gamma = 0.1.
        gsnr_control: None, or a control arm: "constant" (s replaced by its layer mean), "shuffled" (s permuted).
        gsnr_seed: Seed of "shuffled".
        maximize: Ascend instead of descend.
        foreach: False runs torch's plain loop over layers; None and True the fast path.

    Raises:
        ConfigError: an option is out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        gsnr_bounds: Iterable[float] = (0.1, 1.0),
        *,
        gsnr_control: str | None = None,
        gsnr_seed: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        require(not nesterov or momentum > 0.0, f"nesterov needs a momentum above 0, not momentum = {momentum}.")
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)

    def _update(self, group: Group, param: Tensor, gradient: Tensor, state: State) -> None:
        sgd_rule(group, param, gradient, state)

    def _update_block(self, group: Group, block: Block) -> None:
        sgd_block_rule(group, block)
