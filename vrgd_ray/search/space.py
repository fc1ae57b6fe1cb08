"""Search spaces: the protocol, loading them by optimizer name, and overrides from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from vrgd_ray.config import ConfigError, Recipe, check_fields, check_value, require
from vrgd_ray.optim.registry import base_of, hyperparameters, is_vr, names
from vrgd_ray.schedules import create_schedule

LOG_RATIO = 10.0
"""A range from the command line whose ends differ by this factor or more is searched on a log scale."""


class Suggester(Protocol):
    """The part of an Optuna trial that spaces use."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number between the two, evenly on a linear or a log scale."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """A whole number between the two, both included."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices."""
        ...


@dataclass(frozen=True, kw_only=True)
class SpaceContext:
    """What a space may depend on."""

    batch_size: int
    """Global batch of the cell, samples."""
    optimizer: str
    """Optimizer of the cell."""
    reference: Recipe
    """The user's recipe at the small batch."""

    @property
    def same_family(self) -> bool:
        """Whether the reference's learning rate and decay mean something to the cell's optimizer."""
        return base_of(self.optimizer) == base_of(self.reference.optimizer)

    @property
    def batch_ratio(self) -> float:
        """The cell's batch over the reference's."""
        return self.batch_size / self.reference.batch_size

    @property
    def is_vr(self) -> bool:
        """Whether the optimizer scales by GSNR."""
        return is_vr(self.optimizer)


class SearchSpace(Protocol):
    """A module of `search_spaces/`, or an object a pipeline brings."""

    def suggest(self, trial: Suggester, context: SpaceContext) -> dict[str, Any]:
        """Values of recipe fields for one trial, drawn define-by-run."""
        ...


def load_space(optimizer: str, pipeline: Any = None) -> SearchSpace:
    """The pipeline's own space, else `search_spaces/<base optimizer>.py`.

    Raises:
        ConfigError: there is no space for the optimizer, or it has no `suggest`.
    """
    own = getattr(pipeline, "search_space", None)
    name = f"search_spaces.{base_of(optimizer)}"
    try:
        space: Any = own if own is not None else import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(f"no search space for optimizer {optimizer!r}: {name} is missing.") from error
    require(
        callable(getattr(space, "suggest", None)),
        f"the search space of {optimizer} ({type(space).__name__}) lacks suggest(trial, context).",
    )
    found: SearchSpace = space
    return found


@dataclass(frozen=True, kw_only=True)
class Override:
    """One `--set name=...`: a fixed value, a list of choices, or a range."""

    choices: tuple[Any, ...] = ()
    """The values to choose from; a single one is fixed. Empty for a range."""
    low: float = 0.0
    """Lower end of a range."""
    high: float = 0.0
    """Upper end of a range."""
    log: bool = False
    """Whether a range is searched on a logarithmic scale."""

    def suggest(self, name: str, trial: Suggester) -> Any:
        """Draw the value in place of the space's own range."""
        if len(self.choices) == 1:
            return self.choices[0]
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def contains(self, value: Any) -> bool:
        """Whether the value can be drawn."""
        if self.choices:
            return value in self.choices
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def __str__(self) -> str:
        if len(self.choices) == 1:
            return f"fixed {self.choices[0]}"
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return f"{self.low:.3g} to {self.high:.3g}{' on a log scale' if self.log else ''}"


def parse_overrides(settings: Sequence[str], *, every_field: bool = False) -> dict[str, Override]:
    """Parse `name=value`, `name=a,b,c` (choices) and `name=low:high` (range).

    Raises:
        ConfigError: a name is no recipe field, or a value cannot be read.
    """
    overrides = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        require(bool(equals and text), f"--set {setting!r} must be name=value, name=a,b,c or name=low:high.")
        check_fields([name])
        fixed = name in ("batch_size", "optimizer", "seed", "epochs") and not every_field
        require(not fixed, f"--set {name} is not searched: it is the same for all trials of a cell; use its own flag.")
        overrides[name] = _parse_choices(name, text) if ":" not in text else _parse_range(name, text)
    return overrides


def _parse_choices(name: str, text: str) -> Override:
    choices = tuple(_scalar(item) for item in text.split(","))
    for value in choices:
        check_value(name, value)
        if name == "schedule":
            create_schedule(value)
    return Override(choices=choices)


def _parse_range(name: str, text: str) -> Override:
    low, high = (_scalar(item) for item in text.split(":", 1))
    numbers = isinstance(low, (int, float)) and isinstance(high, (int, float))
    require(
        numbers and low < high and name not in _TEXT_FIELDS,
        f"--set '{name}={text}': a range is low:high with two numbers, low below high, for a field that is a number.",
    )
    check_value(name, low)
    check_value(name, high)
    if name not in _WHOLE_FIELDS:
        low, high = float(low), float(high)
    return Override(low=low, high=high, log=low > 0 and high / low >= LOG_RATIO)


_WHOLE_FIELDS = ("batch_size", "num_groups", "seed")
_TEXT_FIELDS = ("optimizer", "schedule", "gsnr_control")


def _scalar(text: str) -> Any:
    """A number where the text is one (also 1e-3, which YAML takes for a string), None for "none", else the text."""
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text.lower() == "none" else text


class OverridingTrial:
    """A trial that draws overridden names from the override and leaves the rest to the space."""

    def __init__(self, trial: Suggester, overrides: Mapping[str, Override]) -> None:
        self.trial, self.overrides = trial, overrides

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """As the wrapped trial, unless overridden."""
        return (
            float(self._overridden(name))
            if name in self.overrides
            else self.trial.suggest_float(name, low, high, log=log)
        )

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """As the wrapped trial, unless overridden."""
        return (
            int(self._overridden(name)) if name in self.overrides else self.trial.suggest_int(name, low, high, log=log)
        )

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """As the wrapped trial, unless overridden."""
        return self._overridden(name) if name in self.overrides else self.trial.suggest_categorical(name, choices)

    def _overridden(self, name: str) -> Any:
        return self.overrides[name].suggest(name, self.trial)


def suggest(
    space: SearchSpace, trial: Suggester, context: SpaceContext, overrides: Mapping[str, Override]
) -> dict[str, Any]:
    """Draw one trial's values: the space's, with overrides in place, and what only the overrides name.

    Overrides of fields that this optimizer does not use are left out, so that `--set gsnr_lower=...` concerns the VR
    arm alone.

    Raises:
        ConfigError: the space suggests a field that the optimizer does not use: the search would tune nothing.
    """
    values = dict(space.suggest(OverridingTrial(trial, overrides), context))
    check_fields(values)
    for name in values:
        require(uses(context.optimizer, name), f"the search space suggests {name}, which {context.optimizer} ignores.")
    for name, override in overrides.items():
        if name not in values and uses(context.optimizer, name):
            values[name] = override.suggest(name, trial)
    return values


def uses(optimizer: str, name: str) -> bool:
    """Whether a field of the recipe changes anything for this optimizer."""
    own = hyperparameters(optimizer)
    return name in own or not any(name in hyperparameters(other) for other in names())


class DescribingTrial:
    """A trial that notes what it is asked for and answers with the middle of each range."""

    def __init__(self) -> None:
        self.asked: dict[str, Override] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Note the range."""
        self.asked[name] = Override(low=float(low), high=float(high), log=log)
        return (low * high) ** 0.5 if log else (low + high) / 2

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """Note the range."""
        self.asked[name] = Override(low=low, high=high, log=log)
        return (low + high) // 2

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Note the choices."""
        self.asked[name] = Override(choices=tuple(choices))
        return choices[0]


def describe(space: SearchSpace, context: SpaceContext, overrides: Mapping[str, Override]) -> dict[str, Override]:
    """Field name -> what will be searched there.

    Raises:
        ConfigError: the ranges of the GSNR bounds overlap, so that a trial could draw them crossed.
    """
    trial = DescribingTrial()
    values = suggest(space, trial, context, overrides)
    searched = {name: trial.asked.get(name, Override(choices=(value,))) for name, value in values.items()}
    _check_bounds_apart(searched, context.reference)
    return searched


def _check_bounds_apart(searched: Mapping[str, Override], reference: Recipe) -> None:
    if not {"gsnr_lower", "gsnr_upper"} & set(searched):
        return
    lower = searched.get("gsnr_lower", Override(choices=(reference.gsnr_lower,)))
    upper = searched.get("gsnr_upper", Override(choices=(reference.gsnr_upper,)))
    highest, lowest = max(lower.choices or (lower.high,)), min(upper.choices or (upper.low,))
    require(
        highest <= lowest,
        f"gsnr_lower up to {highest:g} and gsnr_upper from {lowest:g} can cross; keep the lower at or below the upper.",
    )
