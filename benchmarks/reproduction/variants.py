"""Variants of a VR optimizer that are tuned alike: other bounds, another number of groups, a control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vrgd_ray.limit.scale_controls import CONTROLS


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A VR optimizer, and what differs from the workload's usual setting."""

    name: str
    """What its arm is called."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of `--set`, fixed or ranges."""
    base: str = "base"
    """What the base optimizer that is tuned under the same settings is called."""


USUAL = Variant(name="vr")
"""Nothing differs."""
CONTROL_VARIANTS = tuple(Variant(name=name, settings={"gsnr_control": name}) for name in CONTROLS)
"""The same with a scale that does not know which elements are noisy."""


def one_at_a_time(usual: Mapping[str, float], values: Mapping[str, Sequence[float]]) -> Iterator[Variant]:
    """One setting after the other over its values, the others as usual.

    The usual setting is among the values of all of them; it comes once, with the first.
    """
    first = next(iter(values))
    for setting, others in values.items():
        for value in others:
            if value != usual[setting] or setting == first:
                yield Variant(name=f"{setting}_{value:g}", settings={setting: value})
