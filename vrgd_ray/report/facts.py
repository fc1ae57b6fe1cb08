"""The facts a verdict rests on: margin, level, looks, seeds, control, power, trials and cost."""

from __future__ import annotations

import math

from vrgd_ray.report.reading import (
    Result,
    find_cell,
    optimizers,
    reference_batch,
    reference_curve,
    reference_noise_scale,
    reference_optimizer,
    series_pairs,
    sorted_cells,
)
from vrgd_ray.report.sentences import control_sentence
from vrgd_ray.report.units import Units, count, duration

Fact = tuple[str, str]


def facts(result: Result) -> list[Fact]:
    """Name and text of every fact that is known."""
    found = [
        ("Margin: what counts as no loss", Units.of(result).margin(result)),
        ("Level", _level(result)),
        ("Looks", _looks(result)),
        ("Reference", _reference(result)),
        ("Control", control_sentence(result)),
        ("Power", _power(result)),
        ("Predicted useful batch", _useful_batch(result)),
        ("Trials for each batch and optimizer", _trials(result)),
        ("Cost of the search", _cost(result)),
    ]
    return [(name, text) for name, text in found if text]


def _level(result: Result) -> str:
    """The chance of a wrong headline, and what each single test is left with."""
    alpha, looks = result.get("alpha"), max(1, len(result.get("looks") or []))
    if alpha is None:
        return ""
    when = f"each of {looks} looks" if looks > 1 else "the look"
    text = f"{100 * alpha:g} % in all (one-sided), {_climb_levels(result, looks)} at {when} of its climb"
    largest = result.get("largest") or {}
    cell = find_cell(result, largest.get("batch_size", 0), largest.get("optimizer", "")) or {}
    own, climb = cell.get("level_per_look"), _climb_level(result, largest.get("optimizer", ""))
    if not own or not climb or math.isclose(own, climb):
        return text
    return f"{text}; the claim itself was tested at {100 * own:.3g} % a look"


def _climb_levels(result: Result, looks: int) -> str:
    """The level of one look in the climb, optimizer by optimizer where they start from different rungs."""
    names = optimizers(result)
    levels = {name: f"{100 * level:.3g} %" for name in names if (level := _climb_level(result, name))}
    if len(set(levels.values())) > 1:
        return ", ".join(f"{level} for {name}" for name, level in levels.items())
    shares = max(1, len(names))
    each = 100 * (result.get("level_per_look") or result["alpha"] / shares / looks)
    return f"{each:.3g} % for {f'each of {shares} optimizers' if shares > 1 else 'the optimizer'}"


def _climb_level(result: Result, optimizer: str) -> float | None:
    """Level of one look at the rung an optimizer started from; None where it is not known."""
    start = (result.get("starts") or {}).get(optimizer)
    cell = find_cell(result, start, optimizer) if start is not None else None
    return (cell or {}).get("level_per_look") or result.get("level_per_look")


def _looks(result: Result) -> str:
    looks = [str(seeds) for seeds in result.get("looks") or []]
    paired = ", seeds paired" if result.get("paired") else ""
    return f"after {' and '.join(looks)} fresh seeds an arm, on test data tuning never saw{paired}" if looks else ""


def _reference(result: Result) -> str:
    arm, units = result.get("reference") or {}, Units.of(result)
    if arm.get("mean") is None:
        return ""
    spread = f" ± {units.value(arm['std'], 1)}" if arm.get("std") is not None else ""
    values = f"{result.get('metric')} {units.value(arm['mean'], 1)}{spread}, {len(arm.get('values') or [])} seeds"
    return f"batch {reference_batch(result)} with {reference_optimizer(result)}: {values}"


def _power(result: Result) -> str:
    power, units = result.get("power") or {}, Units.of(result)
    if not power.get("seed_std"):
        return ""
    text = f"seeds spread by {units.amount(power['seed_std'], 1)}"
    if power.get("acceptance") is not None:
        text += f"; an equal batch passes with a chance of {power['acceptance']:.0%}"
    if power.get("detectable") is not None:
        text += f", and 4 times in 5 from a margin of {units.amount(power['detectable'], 1)}"
    return text


def _useful_batch(result: Result) -> str:
    """The noise scale at the end of the reference's run, beside the largest batch that was accepted."""
    noise_scale, curve = reference_noise_scale(result), reference_curve(result) or {}
    if noise_scale is None:
        return ""
    ends = [series_pairs(curve, name)[-1:] for name in ("noise_scale_low", "noise_scale_high")]
    interval = f" (95 %: {' to '.join(count(value) for [(_, value)] in ends)})" if all(ends) else ""
    largest = (result.get("largest") or {}).get("batch_size")
    measured = f"largest accepted: {count(largest)}" if largest else "none above the reference is claimed"
    return f"about {count(noise_scale)} samples, the noise scale{interval}; {measured}"


def _trials(result: Result) -> str:
    numbers = sorted({cell["trials"] for cell in sorted_cells(result) if cell.get("trials")})  # of cells begun
    if not numbers:
        return ""
    spread = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return "; ".join([f"{spread}, reference included", *_lost_trials(result)])


def _lost_trials(result: Result) -> list[str]:
    """How many trials of the whole search have no final metric, cause by cause."""
    arms = [result.get("reference") or {}, *sorted_cells(result)]
    causes = {"diverged": "diverged", "broken": "failed", "pruned": "stopped early"}
    lost = {words: sum(arm.get(name) or 0 for arm in arms) for name, words in causes.items()}
    return [f"{number} {words}" for words, number in lost.items() if number]


def _cost(result: Result) -> str:
    cost = result.get("cost") or {}
    parts = [
        f"{count(cost['trials'])} training runs" if cost.get("trials") is not None else "",
        f"{count(cost['samples'])} samples" if cost.get("samples") is not None else "",
        duration(cost["seconds"]) if cost.get("seconds") is not None else "",
    ]
    return ", ".join(part for part in parts if part)
