"""Questions asked of a parsed `result.json`, so that tables, sentences and figures answer them alike."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

Result = dict[str, Any]
Cell = dict[str, Any]
Rejection = Literal["error", "all diverged", "none usable", "seed diverged"]
"""error: it could not be trained; none usable: its trials diverged, failed or were stopped early, not all alike."""
ControlTrouble = Literal["not accepted", "diverged", "error", "lost"]

VR_PREFIX = "vr_"
VERDICTS = {"accept": "accepted", "reject": "rejected", "inconclusive": "inconclusive"}

_ALL_DIVERGED = re.compile(r"all \d+ trials (failed \(diverged\)|diverged)")
_NONE_USABLE = re.compile(r"of \d+ trials, |all \d+ trials were stopped early")


def reference_recipe(result: Result) -> dict[str, Any]:
    """The reference's recipe, empty as long as the reference has not been tuned."""
    return dict((result.get("reference") or {}).get("recipe") or {})


def reference_batch(result: Result) -> int | None:
    """Batch size of the reference, or None where it is not known."""
    return (result.get("reference") or {}).get("batch_size") or reference_recipe(result).get("batch_size")


def reference_optimizer(result: Result) -> str | None:
    """Optimizer of the reference, or None where it is not known."""
    return (result.get("reference") or {}).get("optimizer") or reference_recipe(result).get("optimizer")


def reference_mean(result: Result) -> float | None:
    """Mean test metric of the reference over its seeds."""
    mean = (result.get("reference") or {}).get("mean")
    return float(mean) if mean is not None and math.isfinite(mean) else None


def sorted_cells(result: Result) -> list[Cell]:
    """All cells by batch size, then in the order in which the optimizers were named."""
    order = {name: rank for rank, name in enumerate(optimizers(result))}
    return sorted(result.get("cells") or [], key=lambda c: (c["batch_size"], order.get(c["optimizer"], len(order))))


def optimizers(result: Result) -> list[str]:
    """Every optimizer of the search: those asked for first, then any that only occurs in cells."""
    found = [*(result.get("optimizers") or []), *(cell["optimizer"] for cell in result.get("cells") or [])]
    return list(dict.fromkeys(found))


def find_cell(result: Result, batch_size: int, optimizer: str) -> Cell | None:
    """The cell of one batch size and optimizer, None where there is none."""
    cells = result.get("cells") or []
    return next((c for c in cells if c["batch_size"] == batch_size and c["optimizer"] == optimizer), None)


def accepted(cell: Cell, claim: str | None = None) -> bool:
    """True where the cell was accepted (and, if given, under this claim)."""
    return cell.get("verdict") == "accept" and claim in (None, cell.get("claim"))


def rejection(cell: Cell) -> Rejection | None:
    """Why a cell was rejected without a comparison; None where it was compared, or not rejected."""
    if cell.get("verdict") != "reject":
        return None
    reason = str(cell.get("reason") or "")
    if not reason and cell.get("difference") is not None:
        return None
    if _ALL_DIVERGED.fullmatch(reason) or (not reason and cell.get("diverged") and cell["diverged"] == cell["trials"]):
        return "all diverged"
    if reason in ("", "a seed diverged"):
        return "seed diverged"
    return "none usable" if _NONE_USABLE.match(reason) else "error"


def bounds(arm: Cell) -> tuple[float, float, float] | None:
    """(lower, difference, upper) of the comparison that decided an arm; None where none did.

    A seed that is lost at the second look overrules the first, whose bounds older versions kept; so does a search that
    ends on the way there.
    """
    found = [arm.get(key) for key in ("lower", "difference", "upper")]
    known = [float(bound) for bound in found if bound is not None and math.isfinite(bound)]
    decided = arm.get("verdict") in VERDICTS and not arm.get("reason")
    return (known[0], known[1], known[2]) if decided and len(known) == len(found) else None


def confirmed_limit(result: Result, optimizer: str) -> int | None:
    """Largest batch confirmed for one optimizer; the reference itself counts for its own optimizer."""
    own = [
        c["batch_size"] for c in result.get("cells") or [] if c["optimizer"] == optimizer and accepted(c, "confirmed")
    ]
    start = reference_batch(result)
    if start is not None and reference_optimizer(result) == optimizer:
        own.append(start)
    return max(own, default=None)


def control_trouble(result: Result) -> ControlTrouble | None:
    """What went wrong when the reference was tested against itself; None where it was accepted, or not tested.

    diverged, error: a seed did; lost: either, which older versions did not tell apart.
    """
    control = result.get("control") or {}
    if control.get("verdict") not in ("reject", "inconclusive"):
        return None
    if control.get("reason"):
        return "diverged" if control["reason"] == "a seed diverged" else "error"
    return "lost" if _lost_unsaid(result, control) else "not accepted"


def _lost_unsaid(result: Result, control: Cell) -> bool:
    """Whether a control was rejected though it has no bounds that reject it, as older versions left it."""
    found, margin = bounds(control), margin_in_metric(result)
    if "reason" in control or control["verdict"] != "reject":
        return False
    return found is None or (margin is not None and found[2] >= -margin)


def control_untested(result: Result) -> bool:
    """True where cells have been compared with a reference that has not been tested against itself."""
    judged = any(cell.get("verdict") in VERDICTS for cell in result.get("cells") or [])
    return judged and (result.get("control") or {}).get("verdict") not in VERDICTS


def direction(result: Result) -> int:
    """+1 where a larger metric is better, -1 where a smaller one is."""
    return -1 if result.get("mode") == "min" else 1


def margin_in_metric(result: Result) -> float | None:
    """The margin as an amount of the metric, whether it was given as an amount or as a share of the reference."""
    margin, mean = result.get("margin"), reference_mean(result)
    if margin is None or not result.get("relative_margin"):
        return margin
    return None if mean is None else margin * abs(mean)


def margin_line(result: Result) -> float | None:
    """The worst mean metric that still counts as no loss."""
    mean, margin = reference_mean(result), margin_in_metric(result)
    return None if mean is None or margin is None else mean - direction(result) * margin


def interval(result: Result, cell: Cell) -> tuple[float, float, float] | None:
    """(worse end, centre, better end) of a cell on the metric's axis: the difference and its bounds, set off from the
    reference's mean, so that accepted means beyond the margin's line."""
    mean, found = reference_mean(result), bounds(cell)
    if mean is None or found is None:
        return None
    worse, centre, better = (mean + direction(result) * bound for bound in found)
    return worse, centre, better


def reference_noise_scale(result: Result) -> float | None:
    """Gradient noise scale of the reference over its runs, in samples; None while unresolved."""
    noise_scale = (result.get("reference") or {}).get("noise_scale")
    return None if not noise_scale else float(noise_scale)


def arms_by_batch(result: Result, optimizer: str) -> dict[int, Cell]:
    """Batch size -> cell of one optimizer, the reference among them where it is its own, in order of batch."""
    arms = {cell["batch_size"]: cell for cell in sorted_cells(result) if cell["optimizer"] == optimizer}
    start = reference_batch(result)
    if start is not None and reference_optimizer(result) == optimizer:
        arms[start] = result["reference"]
    return dict(sorted(arms.items()))


def steps_by_batch(result: Result) -> dict[int, int]:
    """Batch size -> optimizer steps of a run, the same for every optimizer, in order of batch."""
    start, steps = reference_batch(result), (result.get("reference") or {}).get("steps")
    known = {cell["batch_size"]: cell["steps"] for cell in sorted_cells(result) if cell.get("steps")}
    return dict(sorted((known | ({start: steps} if start is not None and steps else {})).items()))


def predicted_steps(result: Result, batch_size: float) -> float | None:
    """Steps a batch needs for the quality of the reference: S = S_min * (1 + B_crit/B), arXiv 1812.06162.

    B_crit is the reference's noise scale, and S_min such that the reference needs the steps it took. None where
    either is not known.
    """
    start, critical = reference_batch(result), reference_noise_scale(result)
    steps = (result.get("reference") or {}).get("steps")
    if start is None or critical is None or not steps:
        return None
    return float(steps / (1 + critical / start) * (1 + critical / batch_size))


def curve_pairs(curve: Cell) -> list[tuple[float, float]]:
    """(samples seen, validation metric) at every evaluation that has both."""
    return _pairs(curve.get("samples"), curve.get("values"))


def series_pairs(curve: Cell, name: str) -> list[tuple[float, float]]:
    """(samples seen, value) of one of the curve's series; empty where it has none."""
    return _pairs(curve.get("samples"), (curve.get("series") or {}).get(name))


def _pairs(samples: list[float] | None, values: list[float] | None) -> list[tuple[float, float]]:
    pairs = zip(samples or [], values or [], strict=False)
    return [(seen, value) for seen, value in pairs if seen is not None and value is not None and math.isfinite(value)]


def find_curve(result: Result, batch_size: int | None, optimizer: str | None) -> Cell | None:
    """The curve of one batch size and optimizer, None where there is none."""
    curves = result.get("curves") or []
    return next((c for c in curves if c["batch_size"] == batch_size and c["optimizer"] == optimizer), None)


def reference_curve(result: Result) -> Cell | None:
    """The reference's curve, None where it has none."""
    return find_curve(result, reference_batch(result), reference_optimizer(result))


def claimed_curve(result: Result, optimizer: str | None = None) -> Cell | None:
    """The curve of the claim; with an optimizer, of its own largest confirmed batch, else of its first batch."""
    if optimizer is None:
        largest = result.get("largest") or {}
        return find_curve(result, largest.get("batch_size"), largest.get("optimizer"))
    own = [curve for curve in result.get("curves") or [] if curve["optimizer"] == optimizer]
    return find_curve(result, confirmed_limit(result, optimizer), optimizer) or next(iter(own), None)


MOST_CURVES = 12
"""Learning curves that one figure can show."""


def shown_curves(result: Result) -> list[Cell]:
    """All curves that have points; of many, the reference's and, per optimizer, the last accepted and the next."""
    curves = [curve for curve in result.get("curves") or [] if curve_pairs(curve)]
    if len(curves) <= MOST_CURVES:
        return curves
    edges = {(reference_batch(result), reference_optimizer(result))}
    for name in optimizers(result):
        limit = confirmed_limit(result, name) or 0
        own = sorted(curve["batch_size"] for curve in curves if curve["optimizer"] == name)
        edges |= {(batch, name) for batch in [limit, *[b for b in own if b > limit][:1]]}
    return [curve for curve in curves if (curve["batch_size"], curve["optimizer"]) in edges]
