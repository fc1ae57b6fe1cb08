"""LAMB on gradients scaled by the running mean of their signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim.optimizer import ParamsT

from vrgd_ray.optim.base import LayerOptimizer
from vrgd_ray.optim.lamb import LAMB


class VRLAMB(LAMB):
    r"""VR-LAMB (arXiv 2309.13681, alg. 1 and app. D).

        p = b3*p + (1-b3)*s,   p^ = p / (1 - b3^t),   g^ = p^*m
        u = v1/(1 - b1^t) / (sqrt(v2/(1 - b2^t)) + eps) + weight_decay*theta     (v1, v2: momenta of g^)
        theta -= lr * norm(theta)/norm(u) * u        (factor 1 if either norm is 0)

    Symbols as in `VRAdam`. Bounds (1, 1) are `LAMB`, bit for bit.

    Args:
        params: Parameters or parameter groups; every option below can be set per group, and `trust_ratio=False`
            replaces the factor by 1, as is customary for biases and normalisations (see `parameter_groups`).
        lr: Learning rate: relative change of a layer's weights per step.
        betas: Decay of the first momentum, the second, and of the running mean of the scale, each in [0, 1).
        eps: Added to the denominator, gradient units.
        weight_decay: Decoupled weight decay, relative to Adam's direction; the default is the one used for BERT.
        gsnr_bounds: Interval of the scale, unit-free; the default is the paper's, gamma = 0.1.
        gsnr_control: None, or a control arm: "constant" (s replaced by its layer mean), "shuffled" (s permuted).
        gsnr_seed: Seed of "shuffled".
        maximize: Ascend instead of descend.
        trust_ratio: Whether the factor norm(theta)/norm(u) applies.
        foreach: False runs a plain loop over layers; None and True the fast path.

    State, float32 for half-precision parameters: `step`, `exp_avg`, `exp_avg_sq` and `scale_avg`, which is p^.

    Raises:
        ConfigError: an option is out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        gsnr_bounds: Iterable[float] = (0.1, 1.0),
        *,
        gsnr_control: str | None = None,
        gsnr_seed: int = 0,
        maximize: bool = False,
        trust_ratio: bool = True,
        foreach: bool | None = None,
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        LayerOptimizer.__init__(self, params, defaults)
