"""Frozen, validated dataclasses: what a run is. Every check names the field and the value it refuses."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any


class ConfigError(ValueError):
    """A value the user gave cannot be used; the message is one sentence that names field, value and remedy."""


class StorageError(RuntimeError):
    """The storage takes nothing more: a full disk, a bucket that cannot be reached. What was written is safe."""

    def __init__(self, place: str, error: OSError) -> None:
        reason = error.strerror or first_line(error)
        super().__init__(f"cannot write to {place}: {reason}. Make room or mend it, then go on with --resume.")


def first_line(error: BaseException) -> str:
    """What an error says, in a line without a full stop; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def require(condition: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def nearest(name: str, valid: list[str]) -> str:
    """Return a phrase that lists the valid names, the nearest one first as a suggestion."""
    close = get_close_matches(name, valid, n=1)
    hint = f"did you mean {close[0]!r}? Valid" if close else "valid"
    return f"{hint}: {', '.join(sorted(valid))}."


@dataclass(frozen=True, kw_only=True)
class GsnrBounds:
    """Interval the layer-normalised GSNR is clipped to (arXiv 2309.13681, eq. 9).

    (1, 1) switches the scale off: the base optimizer, bit for bit.
    """

    lower: float = 0.1
    """Smallest scale of an element, unit-free; the paper's gamma. 0 <= lower <= upper."""
    upper: float = 1.0
    """Largest scale of an element, unit-free; the paper uses 1. upper > 0 and finite."""

    def __post_init__(self) -> None:
        _make_plain(self)
        check_value("gsnr_lower", self.lower)
        check_value("gsnr_upper", self.upper)
        require(
            self.lower <= self.upper,
            f"gsnr_lower = {self.lower} is above gsnr_upper = {self.upper}; the lower bound must not exceed the upper.",
        )

    @property
    def off(self) -> bool:
        """True where the bounds switch the scale off altogether."""
        return self.lower == self.upper == 1.0

    def __iter__(self) -> Iterator[float]:
        return iter((self.lower, self.upper))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a training trajectory, apart from model and data.

    Numbers and names of other libraries, as NumPy's, become Python's own.
    """

    optimizer: str
    """Name in the optimizer registry, for example "adamw" or "vr_adamw"."""
    batch_size: int
    """Global batch: samples behind one optimizer step."""
    lr: float
    """Peak learning rate, in the optimizer's own unit."""
    epochs: float = 1.0
    """Length of the run in passes over the training data; fixes the samples seen, whatever the batch."""
    num_groups: int = 8
    """Groups the global batch is cut into (k >= 2); their gradients give mean and variance."""
    weight_decay: float = 0.0
    """Weight decay, in the optimizer's own convention (decoupled for AdamW, LAMB)."""
    momentum: float = 0.9
    """Momentum of SGD and LARS, unit-free; optimizers without a momentum ignore it."""
    schedule: str = "cosine"
    """Name of the learning-rate schedule: "constant", "cosine", "linear" or "polynomial"."""
    warmup_fraction: float = 0.0
    """Share of all steps spent on a linear warm-up, 0..1."""
    gsnr_lower: float = 0.1
    """Lower bound of the scale; VR optimizers only."""
    gsnr_upper: float = 1.0
    """Upper bound of the scale; VR optimizers only."""
    gsnr_beta: float = 0.9
    """Decay of the running mean of the scale (b3); VR-Adam, VR-AdamW and VR-LAMB only."""
    gsnr_control: str | None = None
    """None, or a control arm: "constant" or "shuffled" scale (what VR gains over it is the worth of the scale)."""
    clip_grad_norm: float | None = None
    """Largest norm of the mean gradient; None for no clipping."""
    seed: int = 0
    """Seed of the initialisation, the order of samples and every random draw of the run."""

    def __post_init__(self) -> None:
        _make_plain(self)
        for field in fields(self):
            check_value(field.name, getattr(self, field.name))
        check_batch_groups(self.batch_size, self.num_groups)
        _ = self.gsnr_bounds

    @property
    def gsnr_bounds(self) -> GsnrBounds:
        """The two bounds as one value."""
        return GsnrBounds(lower=self.gsnr_lower, upper=self.gsnr_upper)

    @property
    def group_size(self) -> int:
        """Samples in one group, b = B/k."""
        return self.batch_size // self.num_groups

    def with_values(self, **changes: Any) -> Recipe:
        """Return a copy with some fields replaced, validated anew.

        Raises:
            ConfigError: a field is unknown or a value is out of range.
        """
        check_fields(changes)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain dict in field order, as written to YAML, JSON and MLflow."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """Build a recipe from a plain dict.

        Raises:
            ConfigError: a field is unknown (the nearest valid one is named), missing, or its value out of range.
        """
        check_fields(values)
        missing = [f.name for f in fields(cls) if f.name in ("optimizer", "batch_size", "lr") and f.name not in values]
        require(not missing, f"the recipe lacks {', '.join(missing)}; give a value for each.")
        return cls(**values)


def check_fields(names: Iterable[str]) -> None:
    """Refuse names that are not fields of `Recipe`, naming the nearest valid one."""
    valid = [f.name for f in fields(Recipe)]
    for name in names:
        require(name in valid, f"unknown recipe field {name!r}: {nearest(str(name), valid)}")


def check_value(name: str, value: Any) -> None:
    """Refuse a value that no recipe could have in this field, whatever its other fields."""
    value = _plain(value)
    if name in _COUNTS:
        _check_count(name, value, *_COUNTS[name])
    elif name in _NAMES:
        require(isinstance(value, str) and value != "", f"{name} = {value!r} must be a name, as {_NAMES[name]!r}.")
    elif name == "gsnr_control":
        require(
            value in (None, "constant", "shuffled"),
            f"gsnr_control = {value!r} must be None (no control), 'constant' or 'shuffled'.",
        )
    elif value is not None or name != "clip_grad_norm":
        _check_number(name, value, **_NUMBERS[name])


def check_batch_groups(batch_size: int, num_groups: int) -> None:
    """Refuse a batch that its groups do not divide, naming the nearest batches that would do."""
    require(
        batch_size >= num_groups,
        f"batch_size = {batch_size} leaves less than one sample for each of num_groups = {num_groups} groups; "
        f"use batch_size >= {num_groups} or fewer groups.",
    )
    lower = batch_size // num_groups * num_groups
    require(
        batch_size % num_groups == 0,
        f"batch_size = {batch_size} is not a multiple of num_groups = {num_groups}; "
        f"the nearest that are: {lower} and {lower + num_groups}.",
    )


def _make_plain(values: Recipe | GsnrBounds) -> None:
    """YAML and checkpoints take Python's own numbers and names only, while some of NumPy's pass for them."""
    for field in fields(values):
        object.__setattr__(values, field.name, _plain(getattr(values, field.name)))


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return str.__str__(value) if isinstance(value, str) else value


_NAMES = {"optimizer": "adamw", "schedule": "cosine"}
_COUNTS = {"batch_size": (1, math.inf), "num_groups": (2, math.inf), "seed": (0, 2**63 - 1)}
_NUMBERS: dict[str, dict[str, float]] = {
    "lr": {"above": 0.0},
    "epochs": {"above": 0.0},
    "weight_decay": {"at_least": 0.0},
    "momentum": {"at_least": 0.0, "below": 1.0},
    "warmup_fraction": {"at_least": 0.0, "at_most": 1.0},
    "gsnr_lower": {"at_least": 0.0},
    "gsnr_upper": {"above": 0.0},
    "gsnr_beta": {"at_least": 0.0, "below": 1.0},
    "clip_grad_norm": {"above": 0.0},
}
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}


def _check_count(name: str, value: Any, lowest: int, highest: float) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(
        whole and lowest <= value <= highest,
        f"{name} = {value!r} must be a whole number of at least {lowest}"
        + (f" and at most {highest}." if highest < math.inf else "."),
    )


def _check_number(name: str, value: Any, **bounds: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf
    words = " and ".join(f"{bound.replace('_', ' ')} {limit:g}" for bound, limit in bounds.items())
    require(
        number and all(_HOLDS[bound](value, limit) for bound, limit in bounds.items()),
        f"{name} = {value!r} must be a finite number, {words}." + yaml_hint(value),
    )


def yaml_hint(value: Any) -> str:
    """What to write instead where YAML took a number for text, as it does with 1e-3."""
    try:
        float(value)
    except (TypeError, ValueError):
        return ""
    return " YAML takes it for text; write a point, as in 1.0e-3, not 1e-3." if isinstance(value, str) else ""
