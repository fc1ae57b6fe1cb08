"""Going on with a search under a larger plan: what may be larger, and what the looks taken before cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from vrgd_ray.config import require
from vrgd_ray.limit.plan import SearchPlan
from vrgd_ray.search.job import Role

TESTED: tuple[Role, ...] = ("reference", "confirm", "control")
"""Roles whose seeds a verdict rests on."""
_MAY_GROW: dict[str, Callable[[Any, Any], bool]] = {
    "trials": lambda new, old: new >= old,
    "seeds": lambda new, old: new >= old,
    "looks": lambda new, old: len(new) == len(old) and all(n >= o for n, o in zip(new, old, strict=True)),
    "batch_sizes": lambda new, old: set(new) >= set(old),
    "resolution": lambda new, old: new <= old,
}
"""Fields of a plan that a continuation may change, and in which direction."""
_DEFAULTS = {field.name: field.default for field in fields(SearchPlan)}


def check_continues(plan: dict[str, Any], saved: dict[str, Any], where: str) -> None:
    """Refuse a plan that is neither the saved one nor an extension of it.

    An extension has more trials, more seeds, further batch sizes or a finer resolution, and nothing else.

    Raises:
        ConfigError: naming every value that differs in another way.
    """
    changes = _changes(as_saved(plan), as_saved(saved))
    refused = [f"{name} = {new} (it was {old})" for name, new, old in changes if not _grows(name, new, old)]
    require(
        not refused,
        f"cannot resume the search in {where} with {'; '.join(refused)}; repeat its command (more trials, seeds or "
        "batch sizes, or a finer resolution, would do), or choose another --name.",
    )


def as_saved(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan as it comes back from JSON."""
    found: dict[str, Any] = json.loads(json.dumps(plan))
    return found


def count_continuations(records: Iterable[dict[str, Any]]) -> int:
    """How often a search went on after seeds had been compared, by the records of its ledger: what costs level.

    It does so under a larger plan, and where a mended error changed a recipe that had been tested, which its jobs know.
    A plan that differs in any other way, as one that a newer version has a field more in, costs nothing.
    """
    continuations, fresh, compared, plan = 0, False, False, dict[str, Any]()
    for record in records:
        if "plan" in record:
            if fresh and compared and _is_larger(record["plan"], plan):
                continuations, fresh = continuations + 1, False
            plan = record["plan"]
        else:
            job = record["job"]
            continuations = max(continuations, job.get("continuation", 0))
            fresh = fresh or job["role"] in TESTED
            compared = compared or job["role"] == "confirm"
    return continuations


def total_alpha(alpha: float, continuations: int) -> float:
    """Chance of a wrong claim in any verdict of a search that has been continued so often.

    Every continuation has seen the verdicts before it and tests at half their level: alpha + alpha/2 + alpha/4 + ...
    """
    return alpha * (2.0 - 0.5**continuations)


def _is_larger(plan: dict[str, Any], saved: dict[str, Any]) -> bool:
    return any(name in _MAY_GROW and old is not None for name, _, old in _changes(plan, saved))


def _grows(name: str, new: Any, old: Any) -> bool:
    if name == "data_fingerprint" and new is None:  # cannot be told here
        return True
    if old is None:  # from before the field, or not known then
        return name == "data_fingerprint" or new == _DEFAULTS.get(name)
    return name in _MAY_GROW and _MAY_GROW[name](new, old)


def _changes(own: dict[str, Any], saved: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, new and old value of everything that differs, those of nested dicts by their own names."""
    found = []
    for name, value in own.items():
        before = saved.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found += _changes(value, before)
        elif value != before:
            found.append((name, value, before))
    return found
