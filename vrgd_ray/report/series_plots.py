"""What the gradients told over training: the noise scale, and what the GSNR scale did to the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import INK, MUTED, SAFE, SERIES, figure, legend_above, samples_axis, to_svg
from vrgd_ray.report.reading import (
    Cell,
    Result,
    claimed_curve,
    optimizers,
    reference_batch,
    reference_curve,
    series_pairs,
)
from vrgd_ray.report.units import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def noise_figure(result: Result) -> str:
    """Noise scale over training, with intervals, beside the reference's batch and the largest one accepted."""
    chosen = [(reference_curve(result), INK), (claimed_curve(result), SERIES[1])]
    curves = [(curve, colour) for curve, colour in chosen if curve and series_pairs(curve, "noise_scale")]
    if not curves:
        return ""
    with figure() as (drawing, axes):
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: count(value) if value >= 1 else f"{value:g}")
        handles = [handle for curve, colour in curves for handle in _draw_noise(axes, curve, colour)]
        handles += _draw_batches(axes, result)
        samples_axis(axes)
        axes.set_ylabel("batch size, samples")
        legend_above(drawing, handles, 2)
        return to_svg(drawing, "noise", "Gradient noise scale over training, beside the largest batch accepted")


def scale_figures(result: Result) -> list[tuple[str, str]]:
    """(optimizer and batch, figure) for every variance-reduced optimizer: its scale over layers and training."""
    found: list[tuple[str, str]] = []
    for name in optimizers(result):
        curve = claimed_curve(result, name)
        if curve and series_pairs(curve, "scale_q50"):
            found.append((f"{name} at batch {curve['batch_size']}", _scale_figure(curve, f"scale-{len(found)}")))
    return found


def _draw_noise(axes: Axes, curve: Cell, colour: str) -> list[Any]:
    _draw_band(axes, curve, "noise_scale_low", "noise_scale_high", colour)
    samples, values = zip(*series_pairs(curve, "noise_scale"), strict=True)
    label = f"noise scale, {curve['batch_size']} {curve['optimizer']}"
    return list(axes.plot(samples, values, "o-", ms=4, color=colour, label=label))


def _draw_batches(axes: Axes, result: Result) -> list[Any]:
    largest, start = (result.get("largest") or {}).get("batch_size"), reference_batch(result)
    lines = []
    if start is not None:
        lines.append(axes.axhline(start, color=MUTED, lw=1.4, ls=(0, (1, 1.3)), label=f"reference batch {start}"))
    if largest is not None and largest != start:
        lines.append(axes.axhline(largest, color=SAFE, lw=1.8, ls=(0, (5, 2)), label=f"largest accepted {largest}"))
    return lines


def _scale_figure(curve: Cell, name: str) -> str:
    with figure() as (drawing, axes):
        band = _draw_band(axes, curve, "scale_q10", "scale_q90", SERIES[0])
        styles: dict[str, dict[str, Any]] = {
            "scale_q50": {"label": "median layer", "color": SERIES[0]},
            "mean_scale": {"label": "mean of all elements", "color": INK, "ls": (0, (1, 1.3))},
            "step_ratio": {"label": "step length, scaled / not", "color": SERIES[1], "ls": (0, (4, 1.6))},
        }
        handles = band + [line for key, style in styles.items() for line in _draw_line(axes, curve, key, style)]
        axes.set_ylim(bottom=0)
        samples_axis(axes)
        axes.set_ylabel("scale of the gradient")
        legend_above(drawing, handles, 2)
        return to_svg(drawing, name, f"Scale over layers and training, {curve['optimizer']}")


def _draw_line(axes: Axes, curve: Cell, key: str, style: dict[str, Any]) -> list[Any]:
    pairs = series_pairs(curve, key)
    return list(axes.plot(*zip(*pairs, strict=True), **style)) if pairs else []


def _draw_band(axes: Axes, curve: Cell, low: str, high: str, colour: str) -> list[Any]:
    """Fill between two series where both are known."""
    lower, upper = dict(series_pairs(curve, low)), dict(series_pairs(curve, high))
    both = [samples for samples in lower if samples in upper]
    if not both:
        return []
    ends = [lower[samples] for samples in both], [upper[samples] for samples in both]
    return [axes.fill_between(both, ends[0], ends[1], color=colour, alpha=0.2, lw=0, label="8 of 10 layers")]
