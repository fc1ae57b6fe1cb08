"""The figures of the report: each function takes a result and returns an SVG, or "" where there is nothing to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import INK, MUTED, PAPER, SERIES, batch_axis, figure, legend_above, plain_log_ticks, to_svg
from vrgd_ray.report.metric_plot import metric_by_batch
from vrgd_ray.report.reading import (
    Cell,
    Result,
    direction,
    optimizers,
    reference_batch,
    reference_optimizer,
    sorted_cells,
)
from vrgd_ray.report.units import Units, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["learning_curves", "metric_by_batch", "steps_by_batch", "throughput_by_batch"]


def learning_curves(result: Result) -> str:
    """Validation metric against samples seen, for the chosen configuration of every cell."""
    curves = [curve for curve in result.get("curves") or [] if _pairs(curve)]
    if not curves:
        return ""
    with figure() as (drawing, axes):
        units, names = Units.of(result), list(dict.fromkeys(curve["optimizer"] for curve in curves))
        shades = _shades(sorted({curve["batch_size"] for curve in curves}))
        for curve in curves:
            samples, values = zip(*_pairs(curve), strict=True)
            dashes = _dashes(names.index(curve["optimizer"]))
            axes.plot(samples, [v * units.factor for v in values], color=shades[curve["batch_size"]], ls=dashes, lw=1.5)
        _zoom_to_late_values(axes, curves, result, units)
        _thousands(axes)
        axes.set_xlabel("samples seen")
        axes.set_ylabel(units.axis(f"validation {result['metric']}"))
        legend_above(drawing, _curve_handles(shades, names), 4)
        return to_svg(drawing, "curves", f"Validation {result['metric']} against samples seen")


def steps_by_batch(result: Result) -> str:
    """Optimizer steps of the whole run against batch size; the reference and the largest accepted batch stand out."""
    steps = _reference_value(result, "steps") | {
        c["batch_size"]: c["steps"] for c in sorted_cells(result) if c.get("steps")
    }
    if len(steps) < 2:
        return ""
    marked = {reference_batch(result), (result.get("largest") or {}).get("batch_size")}
    with figure() as (drawing, axes):
        batch_axis(axes, list(steps))
        plain_log_ticks(axes)
        axes.plot(list(steps), list(steps.values()), color=MUTED, zorder=1)
        for batch, number in steps.items():
            face = INK if batch in marked else PAPER
            axes.plot(batch, number, "o", ms=8, mec=INK, mfc=face, mew=1.4)
            axes.annotate(count(number), (batch, number), (5, 4), textcoords="offset points", fontsize=9.5)
        axes.margins(y=0.18)
        axes.set_ylabel("optimizer steps")
        return to_svg(drawing, "steps", "Optimizer steps against batch size")


def throughput_by_batch(result: Result) -> str:
    """Samples per second against batch size, a line per optimizer."""
    lines = {name: _throughput(result, name) for name in optimizers(result)}
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        return ""
    with figure() as (drawing, axes):
        batch_axis(axes, [batch for line in lines.values() for batch in line])
        handles: list[Any] = []
        for name, line in lines.items():
            colour = SERIES[optimizers(result).index(name) % len(SERIES)]
            handles += axes.plot(list(line), list(line.values()), "o-", ms=6, color=colour, label=name)
        axes.set_ylim(bottom=0, top=1.1 * max(max(line.values()) for line in lines.values()))
        axes.yaxis.set_major_formatter(lambda value, _: count(value))
        axes.set_ylabel("samples per second")
        legend_above(drawing, handles)
        return to_svg(drawing, "throughput", "Samples per second against batch size")


def _pairs(curve: Cell) -> list[tuple[float, float]]:
    points = zip(curve.get("samples") or [], curve.get("values") or [], strict=False)
    return [(samples, value) for samples, value in points if samples is not None and value is not None]


def _shades(batches: list[int]) -> dict[int, str]:
    """A colour per batch size, from blue for the smallest to orange, all visible on light and dark paper."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    ramp = LinearSegmentedColormap.from_list("batch", ["#2f7fd0", "#8a64c8", "#c9558f", "#e8763a", "#d9a400"])
    last = max(1, len(batches) - 1)
    return {batch: to_hex(ramp(index / last)) for index, batch in enumerate(batches)}


def _dashes(index: int) -> Any:
    return ["-", (0, (4, 1.6)), (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5))][index % 4]


def _curve_handles(shades: dict[int, str], names: list[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    batches = [Line2D([], [], color=shade, lw=2.5, label=str(batch)) for batch, shade in shades.items()]
    return batches + [Line2D([], [], color=INK, ls=_dashes(i), label=name) for i, name in enumerate(names)]


def _zoom_to_late_values(axes: Axes, curves: list[Cell], result: Result, units: Units) -> None:
    """Leave the worst fifth of all values off the axis: the start of training is steep, the end is what differs."""
    values = sorted(value * units.factor for curve in curves for _, value in _pairs(curve))
    fifth = len(values) // 5
    low, high = (values[fifth], values[-1]) if direction(result) > 0 else (values[0], values[-1 - fifth])
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)


def _thousands(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _reference_value(result: Result, field: str) -> dict[int, float]:
    batch, value = reference_batch(result), (result.get("reference") or {}).get(field)
    return {batch: value} if batch is not None and value else {}


def _throughput(result: Result, optimizer: str) -> dict[int, float]:
    own = reference_optimizer(result) == optimizer
    line = _reference_value(result, "samples_per_second") if own else {}
    cells = [c for c in sorted_cells(result) if c["optimizer"] == optimizer and c.get("samples_per_second")]
    return line | {cell["batch_size"]: cell["samples_per_second"] for cell in cells}
