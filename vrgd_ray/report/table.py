"""The table of everything that was tested, for the terminal and for the page."""

from __future__ import annotations

from typing import Any

from vrgd_ray.report.reading import (
    VERDICTS,
    VR_PREFIX,
    Cell,
    Result,
    bounds,
    control_trouble,
    reference_batch,
    reference_optimizer,
    reference_recipe,
    rejection,
    sorted_cells,
)
from vrgd_ray.report.units import MISSING, Units, count, plain

REJECTIONS = {
    "error": "could not be trained",
    "all diverged": "all trials diverged",
    "none usable": "no trial could be used",
    "seed diverged": "a seed diverged",
}
LOST = {"diverged": "rejected: a seed diverged", "error": "could not be trained", "lost": "rejected: a seed was lost"}
LEFT_ALIGNED = ("optimizer", "verdict")
Row = list[str]


def table_rows(result: Result) -> list[Row]:
    """Header and rows as strings: the reference, its control, then every cell by batch size."""
    units = Units.of(result)
    rows = [_header(result)]
    if result.get("reference"):
        rows.append(_reference_row(result, units))
    if (result.get("control") or {}).get("values"):
        rows.append(_control_row(result, units))
    return rows + [_cell_row(cell, units) for cell in sorted_cells(result)]


def text_table(result: Result) -> str:
    """The table in plain text, one line a row, columns aligned."""
    rows = table_rows(result)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = [name in LEFT_ALIGNED for name in rows[0]]
    lines = [_text_line(row, widths, left) for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def recipe_rows(result: Result) -> list[Row]:
    """The chosen hyper-parameters of reference and cells; fields that never differ are left out."""
    recipes = [reference_recipe(result), *(cell.get("recipe") or {} for cell in sorted_cells(result))]
    recipes = [recipe for recipe in recipes if recipe]
    known = dict.fromkeys(["batch_size", *(key for recipe in recipes for key in recipe)])
    fields = [name for name in known if _matters(name, recipes)]
    if not recipes:
        return []
    return [fields, *([_field(recipe, name) for name in fields] for recipe in recipes)]


def _header(result: Result) -> Row:
    metric = f"test {result.get('metric', 'metric')}" + (" %" if Units.of(result).percent else "")
    return ["batch", "optimizer", f"{metric} (seeds)", "difference [bounds]", "verdict", "steps", "samples/s"]


def _reference_row(result: Result, units: Units) -> Row:
    arm = result["reference"]
    return [*_reference_name(result), _mean(arm, units), MISSING, "reference", *_speed(arm)]


def _control_row(result: Result, units: Units) -> Row:
    control, trouble = result["control"], control_trouble(result)
    verdict = f"control {LOST.get(str(trouble)) or _verdict(control)}"
    seeds = f"({len(control.get('values') or [])} other)"
    compared = MISSING if trouble == "lost" else _bounds(control, units)
    return [*_reference_name(result), seeds, compared, verdict, MISSING, MISSING]


def _reference_name(result: Result) -> Row:
    return [count(reference_batch(result)), reference_optimizer(result) or MISSING]


def _cell_row(cell: Cell, units: Units) -> Row:
    name = [count(cell["batch_size"]), str(cell["optimizer"])]
    return [*name, _mean(cell, units), _bounds(cell, units), verdict_words(cell), *_speed(cell)]


def verdict_words(cell: Cell) -> str:
    """The verdict of a cell with its claim, in words."""
    why = rejection(cell)
    if why is not None:
        return f"rejected: {REJECTIONS[why]}"
    verdict, claim = _verdict(cell), cell.get("claim")
    return f"{verdict} ({claim})" if verdict == "accepted" and claim else verdict


def _verdict(arm: dict[str, Any]) -> str:
    return VERDICTS.get(str(arm.get("verdict"))) or ("undecided" if arm.get("values") else "not tested")


def _mean(arm: dict[str, Any], units: Units) -> str:
    if arm.get("mean") is None:
        return MISSING
    spread = f" +- {units.value(arm['std'], 1)}" if arm.get("std") is not None else ""
    return f"{units.value(arm['mean'], 1)}{spread} ({len(arm.get('values') or [])})"


def _bounds(arm: dict[str, Any], units: Units) -> str:
    found = bounds(arm)
    if found is None:
        return MISSING
    lower, centre, upper = map(units.difference, found)
    return f"{centre} [{lower}, {upper}]"


def _speed(arm: dict[str, Any]) -> Row:
    return [count(arm.get("steps")), count(arm.get("samples_per_second"))]


def _text_line(row: Row, widths: list[int], left: list[bool]) -> str:
    cells = [
        text.ljust(width) if flush else text.rjust(width) for text, width, flush in zip(row, widths, left, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _matters(name: str, recipes: list[dict[str, Any]]) -> bool:
    always = name in ("batch_size", "optimizer", "lr")
    return name != "seed" and (always or len({str(recipe.get(name)) for recipe in recipes}) > 1)


def _field(recipe: dict[str, Any], name: str) -> str:
    """One field; the GSNR's own are blank for optimizers that do not use them."""
    unused = name.startswith("gsnr_") and not str(recipe.get("optimizer")).startswith(VR_PREFIX)
    return MISSING if unused else plain(recipe.get(name))
