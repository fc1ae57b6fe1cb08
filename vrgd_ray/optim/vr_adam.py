"""Adam on gradients scaled by the running mean of their signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.adam import AdamLike


class VRAdam(AdamLike):
    r"""VR-Adam (arXiv 2309.13681, sec. 4.2 and app. D).

        p = b3*p + (1-b3)*s,   p^ = p / (1 - b3^t),   g^ = p^*m + weight_decay*theta
        v1 = b1*v1 + (1-b1)*g^,   v2 = b2*v2 + (1-b2)*g^^2
        theta -= lr * v1/(1 - b1^t) / (sqrt(v2/(1 - b2^t)) + eps)

    with m the mean gradient over the groups, `.grad`, s the scale (see `gsnr_scale`) from m and `.grad_var`, both as
    `GradientMoments` leaves them, and t the step counted from 1. The scale acts before the momenta, which so stay
    unbiased. Bounds (1, 1) are `torch.optim.Adam`, bit for bit with `foreach=False`.

    Args:
        params: Parameters or parameter groups; every option below can be set per group.
        lr: Learning rate, parameter units per step.
        betas: Decay of the first momentum, the second, and of the running mean of the scale, each in [0, 1).
        eps: Added to the denominator, gradient units.
        weight_decay: Coupled weight decay (inside the gradient).
        gsnr_bounds: Interval of the scale, unit-free; the default is the paper's, gamma = 0.1.
        gsnr_control: None, or a control arm: "constant" (s replaced by its layer mean), "shuffled" (s permuted).
        gsnr_seed: Seed of "shuffled".
        maximize: Ascend instead of descend.
        foreach: False runs torch's plain loop over layers; None and True the fast path.

    State: `step`, `exp_avg`, `exp_avg_sq` as in `torch.optim.Adam`, and `scale_avg`, which is p^.

    Raises:
        ConfigError: an option is out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        gsnr_bounds: Iterable[float] = (0.1, 1.0),
        *,
        gsnr_control: str | None = None,
        gsnr_seed: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)
