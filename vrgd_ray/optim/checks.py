"""Checks of options and of what a step finds on the parameters; every message says what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from vrgd_ray.config import ConfigError, GsnrBounds, require
from vrgd_ray.optim.gsnr import CONTROLS

REMEDY = "wrap forward and backward of every micro-batch in `with moments.micro_batch(last=...)`"
"""How the gradients an optimizer needs come about; `moments` is a GradientMoments."""


def checked_gradient(param: Tensor) -> Tensor:
    """Return the dense, real gradient of a parameter.

    Raises:
        RuntimeError: the gradient is sparse or complex.
    """
    gradient = param.grad
    assert gradient is not None
    if gradient.layout is not torch.strided:
        raise RuntimeError(f"{_name(param)} has a sparse gradient; build its embedding with sparse=False.")
    if gradient.is_complex():
        raise RuntimeError(f"{_name(param)} is complex; store real and imaginary part as two real parameters.")
    return gradient


def checked_variance(param: Tensor, *, stale: bool = False) -> Tensor:
    """Return the variance that belongs to a parameter's gradient: fresh for a step, `stale` for a look back at one.

    Raises:
        RuntimeError: it is missing, of the wrong shape or type, or an earlier step has used it.
    """
    variance: Tensor | None = getattr(param, "grad_var", None)
    if variance is None:
        raise RuntimeError(
            f"{_name(param)} has a gradient but no `.grad_var`; {REMEDY} and step after the one with last=True, "
            "or switch the scale off with gsnr_bounds=(1, 1)."
        )
    if getattr(variance, "consumed", False) is not stale:
        raise RuntimeError(
            f"no step has used the gradient of {_name(param)} yet; read the scale after step()."
            if stale
            else f"the gradient of {_name(param)} was used by an earlier step; {REMEDY} before each step."
        )
    if variance.shape != param.shape or variance.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(
            f"`.grad_var` of {_name(param)} is {variance.dtype} of shape {tuple(variance.shape)}; "
            "it must be float32 or float64 and have the parameter's shape."
        )
    return variance


def consume(variances: Iterable[Tensor | None]) -> None:
    """Mark variances as used, so that no second step runs on the same moments; they stay readable."""
    for variance in variances:
        if variance is not None:
            variance.consumed = True  # type: ignore[attr-defined]


def validate_options(group: dict[str, Any]) -> None:
    """Check every option of a parameter group that has a range.

    Raises:
        ConfigError: names the option, its value and the range.
    """
    for name, (holds, text) in _RANGES.items():
        if name in group:
            require(_number(group[name]) and holds(float(group[name])), f"{name} = {group[name]!r} must be {text}.")
    for beta in group.get("betas", ()):
        require(_number(beta) and 0.0 <= beta < 1.0, f"betas = {group['betas']!r} must be numbers in [0, 1).")
    if "gsnr_bounds" in group:
        group["gsnr_bounds"] = _bounds(group["gsnr_bounds"])
        betas = group.get("betas", (0.0, 0.0, 0.0))
        require(len(betas) == 3, f"betas = {betas!r} must be three numbers: b1, b2 and b3.")
    control = group.get("gsnr_control")
    require(control in CONTROLS, f"gsnr_control = {control!r} is unknown; valid: {', '.join(map(str, CONTROLS))}.")


def _bounds(value: Any) -> tuple[float, float]:
    try:
        lower, upper = value
    except (TypeError, ValueError):
        raise ConfigError(f"gsnr_bounds = {value!r} must be a pair (lower, upper).") from None
    GsnrBounds(lower=lower, upper=upper)
    return float(lower), float(upper)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float, Tensor)) and not isinstance(value, bool) and math.isfinite(value)


def _name(param: Tensor) -> str:
    return f"the parameter of shape {tuple(param.shape)}"


_NOT_NEGATIVE = (lambda value: value >= 0.0, "a finite number of at least 0")
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "eps": _NOT_NEGATIVE,
    "trust_coefficient": (lambda value: value > 0.0, "a finite number above 0"),
    "momentum": (lambda value: 0.0 <= value < 1.0, "a number in [0, 1)"),
}
