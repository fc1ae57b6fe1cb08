"""Questions asked of a parsed `result.json`, so that tables, sentences and figures answer them alike."""

from __future__ import annotations

from typing import Any

Result = dict[str, Any]
Cell = dict[str, Any]

VR_PREFIX = "vr_"


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
    return None if mean is None else float(mean)


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


def all_diverged(cell: Cell) -> bool:
    """True where every trial of the cell ended in NaN or infinity."""
    return bool(cell.get("trials")) and cell.get("diverged") == cell.get("trials")


def confirmed_limit(result: Result, optimizer: str) -> int | None:
    """Largest batch confirmed for one optimizer; the reference itself counts for its own optimizer."""
    own = [
        c["batch_size"] for c in result.get("cells") or [] if c["optimizer"] == optimizer and accepted(c, "confirmed")
    ]
    start = reference_batch(result)
    if start is not None and reference_optimizer(result) == optimizer:
        own.append(start)
    return max(own, default=None)


def control_failed(result: Result) -> bool:
    """True where the reference was tested against itself and not accepted."""
    return (result.get("control") or {}).get("verdict") in ("reject", "inconclusive")


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
    mean, bounds = reference_mean(result), [cell.get(key) for key in ("lower", "difference", "upper")]
    if mean is None or any(bound is None for bound in bounds):
        return None
    worse, centre, better = (mean + direction(result) * float(bound) for bound in bounds if bound is not None)
    return worse, centre, better
