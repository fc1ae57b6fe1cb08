"""The facts a verdict rests on: margin, level, looks, seeds, control, power, trials and cost."""

from __future__ import annotations

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
    alpha, shares = result.get("alpha"), max(1, len(optimizers(result)))
    if alpha is None:
        return ""
    looks = max(1, len(result.get("looks") or []))
    each = 100 * (result.get("level_per_look") or alpha / shares / looks)
    among = f"each of {shares} optimizers" if shares > 1 else "the optimizer"
    when = f"each of {looks} looks" if looks > 1 else "the look"
    text = f"{100 * alpha:g} % in all (one-sided), {each:.3g} % for {among} at {when} of its climb"
    largest = result.get("largest") or {}
    cell = find_cell(result, largest.get("batch_size", 0), largest.get("optimizer", "")) or {}
    own = 100 * (cell.get("level_per_look") or 0.0)
    return f"{text}; the claim itself was tested at {own:.3g} % a look" if own and abs(own - each) > 1e-9 else text


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
    measured = f"largest accepted: {count(largest)}" if largest else "none above the reference was accepted"
    return f"about {count(noise_scale)} samples, the noise scale{interval}; {measured}"


def _trials(result: Result) -> str:
    numbers = sorted({cell["trials"] for cell in sorted_cells(result) if cell.get("trials")})  # of cells begun
    diverged = sum(cell.get("diverged") or 0 for cell in sorted_cells(result))
    if not numbers:
        return ""
    spread = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"{spread}, reference included; {diverged} diverged" if diverged else f"{spread}, reference included"


def _cost(result: Result) -> str:
    cost = result.get("cost") or {}
    parts = [
        f"{count(cost['trials'])} training runs" if cost.get("trials") is not None else "",
        f"{count(cost['samples'])} samples" if cost.get("samples") is not None else "",
        duration(cost["seconds"]) if cost.get("seconds") is not None else "",
    ]
    return ", ".join(part for part in parts if part)
