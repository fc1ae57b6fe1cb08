"""The figure the verdict is read off: metric against batch size, with intervals and margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import (
    BACKED,
    INK,
    PAPER,
    SAFE,
    batch_axis,
    colour_of,
    dashes_of,
    figure,
    legend_above,
    to_svg,
)
from vrgd_ray.report.reading import (
    Cell,
    Result,
    direction,
    interval,
    margin_in_metric,
    margin_line,
    optimizers,
    reference_batch,
    reference_mean,
    sorted_cells,
)
from vrgd_ray.report.units import Units

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = {"accept": "o", "inconclusive": "s", "reject": "X"}
Point = tuple[float, float, float, float, str]  # x, worse end, centre, better end, marker


def metric_by_batch(result: Result) -> str:
    """Metric against batch size: an interval per cell, the reference, and the band of what counts as no loss."""
    shown = [cell for cell in sorted_cells(result) if interval(result, cell)]
    start = reference_batch(result)
    if not shown or start is None:
        return ""
    with figure() as (drawing, axes):
        units = Units.of(result)
        batch_axis(axes, [start, *(cell["batch_size"] for cell in shown)])
        lines: list[Any] = []
        size = 8 if len(shown) <= 16 else 5
        margin = _draw_margin(axes, result, units)
        for index, name in enumerate(optimizers(result)):
            style: dict[str, Any] = {"color": colour_of(index), "ls": dashes_of(index)}
            lines += _draw_cells(axes, _points(result, name, units), style, name, size)
        _zoom_to_margin(axes, result, units)
        axes.set_ylabel(units.axis(f"test {result['metric']}"))
        legend_above(drawing, lines + margin, 2 if len(lines) == 2 else 3)
        return to_svg(drawing, "metric", f"Test {result['metric']} against batch size, with intervals and margin")


def _draw_margin(axes: Axes, result: Result, units: Units) -> list[Any]:
    """Draw the reference, and the band from it down to the worst value that counts as no loss."""
    start, mean, line = reference_batch(result), reference_mean(result), margin_line(result)
    if start is None or mean is None or line is None:
        return []
    band = axes.axhspan(line * units.factor, mean * units.factor, color=SAFE, alpha=0.13, lw=0)
    axes.axhline(line * units.factor, color=SAFE, lw=1.4, ls=(0, (5, 2)))
    band.set_label("margin" if result.get("relative_margin") else f"margin {units.margin(result)}")
    rule = axes.axhline(mean * units.factor, color=INK, lw=1.4)
    axes.plot(start, mean * units.factor, "D", color=INK, ms=7, zorder=4)
    rule.set_label(f"reference {units.value(mean)}")
    rule.set_marker("D")
    rule.set_markevery([])
    return [band, rule]


def _points(result: Result, optimizer: str, units: Units) -> list[Point]:
    """The cells of one optimizer, set a little aside so that the intervals of two do not cover each other."""
    aside = _aside(result, optimizer)
    points = []
    for cell in sorted_cells(result):
        bounds = interval(result, cell) if cell["optimizer"] == optimizer else None
        if bounds:
            worse, centre, better = (bound * units.factor for bound in bounds)
            points.append((cell["batch_size"] * aside, worse, centre, better, MARKERS.get(cell["verdict"], "s")))
    return points


def _aside(result: Result, optimizer: str) -> float:
    names = optimizers(result)
    apart = min(0.22, 0.7 / len(names))
    return float(2 ** (apart * (names.index(optimizer) - (len(names) - 1) / 2)))


def _draw_cells(axes: Axes, points: list[Point], style: dict[str, Any], name: str, size: float) -> list[Any]:
    from matplotlib.lines import Line2D

    colour = style["color"]
    for x, worse, centre, better, marker in points:
        axes.plot([x, x], [worse, better], marker="_", ms=size, mew=1.8, zorder=2, **style)
        axes.plot(x, centre, marker, ms=size, mec=colour, mfc=colour if marker != "s" else PAPER, mew=1.6, zorder=3)
    return [Line2D([], [], label=name, **style)] if points else []


def _zoom_to_margin(axes: Axes, result: Result, units: Units) -> None:
    """Keep the margin readable when a batch collapses: cells far beyond it become arrows at the edge."""
    mean, line, margin, sign = reference_mean(result), margin_line(result), margin_in_metric(result), direction(result)
    if mean is None or line is None or not margin:
        return
    edge = line - sign * 4 * margin
    placed = [(cell, bounds) for cell in sorted_cells(result) if (bounds := interval(result, cell))]
    far = [(cell, bounds[1]) for cell, bounds in placed if sign * (bounds[1] - edge) < 0]
    near = [end for _, bounds in placed for end in bounds if sign * (end - edge) >= 0]
    ends = [units.factor * end for end in [mean, line, *near, *([edge] if far else [])]]
    room = 0.06 * (max(ends) - min(ends))
    axes.set_ylim(min(ends) - room, max(ends) + room)
    _mark_beyond(axes, result, far, units, edge)


def _mark_beyond(axes: Axes, result: Result, far: list[tuple[Cell, float]], units: Units, edge: float) -> None:
    """An arrow for each cell off the axis, and the worst value for each batch."""
    sign, names, worst = direction(result), optimizers(result), dict[int, float]()
    for cell, centre in far:
        batch, name = cell["batch_size"], cell["optimizer"]
        worst[batch] = sign * min(sign * centre, sign * worst.get(batch, centre))
        style: dict[str, Any] = {"color": colour_of(names.index(name)), "ms": 7, "zorder": 5}
        axes.plot(batch * _aside(result, name), edge * units.factor, "v" if sign > 0 else "^", **style)
    for batch, value in worst.items():
        where: dict[str, Any] = {
            "textcoords": "offset points",
            "ha": "center",
            "va": "center",
            "fontsize": 9,
            "zorder": 6,
        }
        where |= BACKED
        axes.annotate(units.value(value), (batch, edge * units.factor), (0, 12 * sign), **where)
