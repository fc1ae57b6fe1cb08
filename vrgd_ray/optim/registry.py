"""Names of the optimizers, what they are, and how to build one from the hyper-parameters of a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from vrgd_ray.config import nearest, require
from vrgd_ray.optim.lamb import LAMB
from vrgd_ray.optim.lars import LARS
from vrgd_ray.optim.vr_adam import VRAdam
from vrgd_ray.optim.vr_adamw import VRAdamW
from vrgd_ray.optim.vr_lamb import VRLAMB
from vrgd_ray.optim.vr_lars import VRLARS
from vrgd_ray.optim.vr_sgd import VRSGD

VR_PREFIX = "vr_"

_MOMENTUM = ("lr", "momentum", "weight_decay")
_ADAM = ("lr", "weight_decay")
_GSNR = ("gsnr_lower", "gsnr_upper", "gsnr_control")


@dataclass(frozen=True)
class Entry:
    """One optimizer of the registry."""

    build: Callable[..., torch.optim.Optimizer]
    hyperparameters: tuple[str, ...]
    description: str


_ENTRIES = {
    "sgd": Entry(torch.optim.SGD, _MOMENTUM, "SGD with momentum (torch)"),
    "adam": Entry(torch.optim.Adam, _ADAM, "Adam, weight decay inside the gradient (torch)"),
    "adamw": Entry(torch.optim.AdamW, _ADAM, "Adam with decoupled weight decay (torch)"),
    "lars": Entry(LARS, _MOMENTUM, "SGD with momentum, steps in proportion to each layer's weights"),
    "lamb": Entry(LAMB, _ADAM, "Adam's direction, steps in proportion to each layer's weights"),
    "vr_sgd": Entry(VRSGD, (*_MOMENTUM, *_GSNR), "SGD with momentum on GSNR-scaled gradients"),
    "vr_adam": Entry(VRAdam, (*_ADAM, *_GSNR, "gsnr_beta"), "Adam on GSNR-scaled gradients"),
    "vr_adamw": Entry(VRAdamW, (*_ADAM, *_GSNR, "gsnr_beta"), "AdamW on GSNR-scaled gradients"),
    "vr_lars": Entry(VRLARS, (*_MOMENTUM, *_GSNR), "LARS on GSNR-scaled gradients"),
    "vr_lamb": Entry(VRLAMB, (*_ADAM, *_GSNR, "gsnr_beta"), "LAMB on GSNR-scaled gradients"),
}

_DEFAULTS = {"weight_decay": 0.0, "momentum": 0.9}


def names() -> tuple[str, ...]:
    """All names, base optimizers first."""
    return tuple(_ENTRIES)


def description(name: str) -> str:
    """One line on what the optimizer does."""
    return _entry(name).description


def hyperparameters(name: str) -> tuple[str, ...]:
    """Names of the recipe's fields that the optimizer uses, in the order of the recipe's documentation."""
    return _entry(name).hyperparameters


def is_vr(name: str) -> bool:
    """Whether the optimizer scales gradients by their signal-to-noise ratio and so needs their variance."""
    _entry(name)
    return name.startswith(VR_PREFIX)


def base_of(name: str) -> str:
    """Name of the base optimizer: "adamw" for "vr_adamw" and for "adamw"."""
    _entry(name)
    return name.removeprefix(VR_PREFIX)


def twin(name: str) -> str:
    """Name of the counterpart with the scale, or without it: "vr_adamw" for "adamw" and the other way round."""
    return base_of(name) if is_vr(name) else VR_PREFIX + name


def create_optimizer(name: str, params: ParamsT, *, lr: float, **options: Any) -> torch.optim.Optimizer:
    """Build an optimizer by name from the hyper-parameters of a recipe.

    Args:
        name: One of `names()`.
        params: Parameters or parameter groups.
        lr: Learning rate.
        options: `weight_decay` (default 0 for every optimizer), `momentum` (default 0.9 where there is one),
            `gsnr_lower` and `gsnr_upper` (or both as `gsnr_bounds`), `gsnr_beta`, `gsnr_control`, and whatever else the
            optimizer's class takes (`eps`, `nesterov`, `foreach`, ...).

    Raises:
        ConfigError: the name is unknown, the optimizer has no such option, or a value is out of its range.
    """
    entry = _entry(name)
    accepted = list(inspect.signature(entry.build).parameters)
    arguments = {key: value for key, value in _DEFAULTS.items() if key in accepted}
    arguments |= _translate_gsnr(entry, options)
    for key in arguments:
        require(key in accepted[1:], f"optimizer {name!r} has no option {key!r}: {nearest(key, _options(entry))}")
    return entry.build(params, lr=lr, **arguments)


def _options(entry: Entry) -> list[str]:
    return sorted({*entry.hyperparameters, *list(inspect.signature(entry.build).parameters)[1:]})


def _translate_gsnr(entry: Entry, options: dict[str, Any]) -> dict[str, Any]:
    """Replace gsnr_lower, gsnr_upper and gsnr_beta by the arguments of the class, where the optimizer has them."""
    arguments = dict(options)
    if "gsnr_lower" in entry.hyperparameters:
        lower, upper = arguments.pop("gsnr_bounds", _default(entry, "gsnr_bounds"))
        arguments["gsnr_bounds"] = (arguments.pop("gsnr_lower", lower), arguments.pop("gsnr_upper", upper))
    if "gsnr_beta" in entry.hyperparameters and "gsnr_beta" in arguments:
        first, second = (*arguments.get("betas", _default(entry, "betas")),)[:2]
        arguments["betas"] = (first, second, arguments.pop("gsnr_beta"))
    return arguments


def _default(entry: Entry, argument: str) -> Any:
    return inspect.signature(entry.build).parameters[argument].default


def _entry(name: str) -> Entry:
    require(name in _ENTRIES, f"unknown optimizer {name!r}: {nearest(name, list(_ENTRIES))}")
    return _ENTRIES[name]
