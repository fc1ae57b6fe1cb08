"""Learning curves of the chosen configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import DASHES, INK, figure, legend_above, samples_axis, shades, to_svg
from vrgd_ray.report.reading import Cell, Result, curve_pairs, direction, shown_curves
from vrgd_ray.report.units import Units

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def learning_curves(result: Result) -> str:
    """Validation metric against samples seen, for the chosen configuration of every cell."""
    curves = shown_curves(result)
    if not curves:
        return ""
    with figure() as (drawing, axes):
        units, names = Units.of(result), list(dict.fromkeys(curve["optimizer"] for curve in curves))
        colours = shades(sorted({curve["batch_size"] for curve in curves}))
        for curve in curves:
            samples, values = zip(*curve_pairs(curve), strict=True)
            style: dict[str, Any] = {"color": colours[curve["batch_size"]], "ls": _dashes(names, curve["optimizer"])}
            axes.plot(samples, [v * units.factor for v in values], lw=1.5, **style)
        _zoom_to_late_values(axes, curves, result, units)
        samples_axis(axes)
        axes.set_ylabel(units.axis(f"validation {result['metric']}"))
        legend_above(drawing, _handles(colours, names), 4)
        return to_svg(drawing, "curves", f"Validation {result['metric']} against samples seen")


def _dashes(names: list[str], name: str) -> Any:
    return DASHES[names.index(name) % len(DASHES)]


def _handles(colours: dict[int, str], names: list[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    batches = [Line2D([], [], color=shade, lw=2.5, label=str(batch)) for batch, shade in colours.items()]
    return batches + [Line2D([], [], color=INK, ls=_dashes(names, name), label=name) for name in names]


def _zoom_to_late_values(axes: Axes, curves: list[Cell], result: Result, units: Units) -> None:
    """Leave the worst fifth of all values off the axis: the start of training is steep, the end is what differs."""
    values = sorted(value * units.factor for curve in curves for _, value in curve_pairs(curve))
    fifth = len(values) // 5
    low, high = (values[fifth], values[-1]) if direction(result) > 0 else (values[0], values[-1 - fifth])
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
