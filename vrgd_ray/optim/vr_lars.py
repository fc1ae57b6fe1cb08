"""LARS on gradients scaled by their signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.lars import LARS


class VRLARS(LARS):
    r"""VR-LARS (arXiv 2309.13681, alg. 1 and app. D).

        g^ = s*m
        ratio = trust_coefficient*norm(theta) / (norm(g^) + weight_decay*norm(theta) + eps)
                (1 if norm(theta) or norm(g^) is 0)
        d = ratio * (g^ + weight_decay*theta), then momentum as in `LARS`

    with m the mean gradient over the groups, `.grad`, and s the scale (see `gsnr_scale`) from m and `.grad_var`, both
    as `GradientMoments` leaves them. Bounds (1, 1) are `LARS`, bit for bit.

    Args:
        params: Parameters or parameter groups; every option below can be set per group, and `trust_ratio=False`
            replaces the ratio by 1, as is customary for biases and normalisations (see `parameter_groups`).
        lr: Learning rate, unit-free: `lr*trust_coefficient` is about the relative change of a layer per step.
        momentum: Momentum factor in [0, 1), unit-free.
        weight_decay: Weight decay inside the gradient and the ratio.
        trust_coefficient: The paper's eta, unit-free.
        eps: Added to the denominator, gradient units.
        gsnr_bounds: Interval of the scale, unit-free; the default is the paper's, gamma = 0.1.
        nesterov: Nesterov momentum.
        gsnr_control: None, or a control arm: "constant" (s replaced by its layer mean), "shuffled" (s permuted).
        gsnr_seed: Seed of "shuffled".
        maximize: Ascend instead of descend.
        trust_ratio: Whether the ratio applies.
        foreach: False runs a plain loop over layers; None and True the fast path.

    State, float32 for half-precision parameters: `momentum_buffer`.

    Raises:
        ConfigError: an option is out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        gsnr_bounds: Iterable[float] = (0.1, 1.0),
        *,
        nesterov: bool = False,
        gsnr_control: str | None = None,
        gsnr_seed: int = 0,
        maximize: bool = False,
        trust_ratio: bool = True,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        LayerOptimizer.__init__(self, params, defaults)
