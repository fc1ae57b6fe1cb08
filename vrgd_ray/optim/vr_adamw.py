"""AdamW on gradients scaled by the running mean of their signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.adam import AdamLike


class VRAdamW(AdamLike):
    r"""VR-AdamW: VR-Adam (arXiv 2309.13681, sec. 4.2) with decoupled weight decay.

        p = b3*p + (1-b3)*s,   p^ = p / (1 - b3^t),   g^ = p^*m
        v1 = b1*v1 + (1-b1)*g^,   v2 = b2*v2 + (1-b2)*g^^2
        theta -= lr * (v1/(1 - b1^t) / (sqrt(v2/(1 - b2^t)) + eps) + weight_decay*theta)

    Symbols as in `VRAdam`. The scale shrinks the gradient but not the weight decay: search `weight_decay` anew rather
    than taking it from AdamW. Bounds (1, 1) are `torch.optim.AdamW`, bit for bit with `foreach=False`.

    Args:
        params: Parameters or parameter groups; every option below can be set per group.
        lr: Learning rate, parameter units per step.
        betas: Decay of the first momentum, the second, and of the running mean of the scale, each in [0, 1).
        eps: Added to the denominator, gradient units.
        weight_decay: Decoupled weight decay, per step and unit of lr; the default is that of `torch.optim.AdamW`.
        gsnr_bounds: Interval of the scale, unit-free; the default is the paper's, gamma = 0.1.
        gsnr_control: None, or a control arm: "constant" (s replaced by its layer mean), "shuffled" (s permuted).
        gsnr_seed: Seed of "shuffled".
        maximize: Ascend instead of descend.
        foreach: False runs torch's plain loop over layers; None and True the fast path.

    State: `step`, `exp_avg`, `exp_avg_sq` as in `torch.optim.AdamW`, and `scale_avg`, which is p^.

    Raises:
        ConfigError: an option is out of its range.
    """

    decoupled = True

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        gsnr_bounds: Iterable[float] = (0.1, 1.0),
        *,
        gsnr_control: str | None = None,
        gsnr_seed: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)
