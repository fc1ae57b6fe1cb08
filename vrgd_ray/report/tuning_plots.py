"""How the hyper-parameters were tuned: every trial as a line through its values, and which of them mattered."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import (
    BACKED,
    GRID,
    INK,
    MUTED,
    SIZE,
    colour_of,
    figure,
    legend_above,
    marker_of,
    shades,
    thinned,
    to_svg,
)
from vrgd_ray.report.reading import Cell, Result, direction, optimizers
from vrgd_ray.report.scale import Scale
from vrgd_ray.report.units import Units, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.5
"""Inches for one field."""
METRIC = "validation metric"


def parallel_figures(result: Result) -> list[tuple[str, str]]:
    """(optimizer, figure) for each: one row per field, one line per trial down through its values to its metric."""
    tuned = [cell for cell in result.get("tuning") or [] if cell["trials"]]
    batches = sorted({cell["batch_size"] for cell in tuned})
    found: list[tuple[str, str]] = []
    for name in optimizers(result):
        own = [cell for cell in tuned if cell["optimizer"] == name]
        if sum(len(cell["trials"]) for cell in own) > 1:
            found.append((name, _parallel(result, own, shades(batches), f"trials-{len(found)}")))
    return found


def importance_figure(result: Result) -> str:
    """Share of the spread between trials that each field explains, a marker per optimizer."""
    found = result.get("importances") or []
    shares = [share for each in found for share in each["shares"].items()]
    if not shares:
        return ""
    largest = dict(sorted(shares, key=itemgetter(1)))
    fields = sorted(largest, key=lambda name: (largest[name], name))
    with figure((SIZE[0], 1.2 + 0.3 * len(fields))) as (drawing, axes):
        handles = [_draw_shares(axes, each, fields, optimizers(result)) for each in found]
        axes.set_yticks(range(len(fields)), [shortened(name) for name in fields])
        axes.set_ylim(-0.6, len(fields) - 0.4)
        axes.set_xlim(left=0)
        axes.set_xlabel("share of the spread between trials, %")
        legend_above(drawing, handles, 2 if len(handles) == 2 else 3)
        return to_svg(drawing, "importance", "Which hyper-parameters mattered")


def _draw_shares(axes: Axes, found: dict[str, Any], fields: list[str], names: list[str]) -> Any:
    index = names.index(found["optimizer"]) if found["optimizer"] in names else len(names)
    places = [(100 * share, fields.index(name)) for name, share in found["shares"].items()]
    style: dict[str, Any] = {"color": colour_of(index), "marker": marker_of(index), "alpha": 0.9}
    (line,) = axes.plot(*zip(*places, strict=True), ls="", ms=8, label=found["optimizer"], **style)
    return line


def _parallel(result: Result, cells: list[Cell], colours: dict[int, str], name: str) -> str:
    scales = _scales(result, cells)
    optimizer = cells[0]["optimizer"]
    with figure((SIZE[0], 0.2 + ROW * len(scales))) as (drawing, axes):
        own = {cell["batch_size"]: colours[cell["batch_size"]] for cell in sorted(cells, key=itemgetter("batch_size"))}
        for row, scale in enumerate(scales.values()):
            _draw_row(axes, row, scale, own)
        for cell in cells:
            _draw_trials(axes, result, cell, scales, colours[cell["batch_size"]])
        axes.set_ylim(len(scales) - 0.5, -0.3)
        axes.set_xlim(0, 1)
        axes.set_axis_off()
        return to_svg(drawing, name, f"Every trial of {optimizer}: its values and its metric")


def _scales(result: Result, cells: list[Cell]) -> dict[str, Scale]:
    """Field -> its scale: the batch first, then all that varied, then the metric; a field may lack in some trials."""
    trials = [trial for cell in cells for trial in cell["trials"]]
    names = dict.fromkeys(name for trial in trials for name in trial["values"])
    columns: dict[str, list[Any]] = {"batch_size": [cell["batch_size"] for cell in cells]}
    columns |= {name: [trial["values"][name] for trial in trials if name in trial["values"]] for name in names}
    varied = {name: values for name, values in columns.items() if name == "batch_size" or len({*map(str, values)}) > 1}
    found = {name: Scale.of(name, values) for name, values in varied.items()}
    units = Units.of(result)
    metrics = [trial["metric"] * units.factor for trial in trials if trial["metric"] is not None]
    label = units.axis(f"validation {result.get('metric')}")
    return found | ({METRIC: Scale.of(label, metrics)} if metrics else {})


def _draw_row(axes: Axes, row: int, scale: Scale, colours: dict[int, str]) -> None:
    """One field: its name at the left, a rule, and the marks below; batch sizes in their colours."""
    axes.plot([0, 1], [row, row], color=GRID, lw=1.2, zorder=0)
    axes.text(-0.05, row, scale.name, fontsize=9, color=INK, ha="right", va="center")
    for place, label in scale.marks():
        side = "left" if place < 0.02 else "right" if place > 0.98 else "center"
        axes.plot([place, place], [row - 0.06, row + 0.06], color=MUTED, lw=0.8, zorder=0)
        if row == 0 and int(label) not in thinned(list(colours)):
            continue
        colour = colours[int(label)] if row == 0 else MUTED
        axes.text(place, row + 0.12, label, fontsize=8, color=colour, ha=side, va="top", zorder=5, **BACKED)


def _draw_trials(axes: Axes, result: Result, cell: Cell, scales: dict[str, Scale], colour: str) -> None:
    """Thin grey for all trials of a cell, thick in the colour of its batch for the best."""
    best = _best(result, cell)
    for trial in cell["trials"]:
        style: dict[str, Any] = {"color": MUTED, "lw": 0.6, "alpha": 0.45, "zorder": 1}
        if trial["metric"] is None:
            style["ls"] = (0, (1, 1.5))
        if trial is best:
            style = {"color": colour, "lw": 2.0, "zorder": 3}
        axes.plot(*zip(*_places(result, cell, trial, scales), strict=True), clip_on=False, **style)


def _places(result: Result, cell: Cell, trial: dict[str, Any], scales: dict[str, Scale]) -> list[tuple[float, int]]:
    """Where a trial crosses the rows; one that diverged ends above the metric's."""
    values = {**trial["values"], "batch_size": cell["batch_size"]}
    if trial["metric"] is not None:
        values[METRIC] = trial["metric"] * Units.of(result).factor
    rows = list(scales)
    return [(scales[name].place(values[name]), rows.index(name)) for name in rows if name in values]


def _best(result: Result, cell: Cell) -> dict[str, Any] | None:
    scored = [trial for trial in cell["trials"] if trial["metric"] is not None]
    return max(scored, key=lambda trial: direction(result) * float(trial["metric"]), default=None)
