"""What a batch costs: optimizer steps and time, beside what the gradient noise scale predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vrgd_ray.report.drawing import (
    INK,
    MUTED,
    PAPER,
    batch_axis,
    colour_of,
    dashes_of,
    figure,
    legend_above,
    marker_of,
    plain_log_ticks,
    to_svg,
)
from vrgd_ray.report.reading import (
    Result,
    arms_by_batch,
    optimizers,
    predicted_steps,
    reference_batch,
    reference_noise_scale,
    reference_optimizer,
    steps_by_batch,
)
from vrgd_ray.report.units import count, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREDICTION: dict[str, Any] = {"color": INK, "ls": (0, (2, 1.6)), "lw": 1.4, "zorder": 1}


def steps_figure(result: Result) -> str:
    """Optimizer steps of a run against batch size, beside the steps predicted to reach the reference's quality."""
    steps = steps_by_batch(result)
    if len(steps) < 2:
        return ""
    marked = {reference_batch(result), (result.get("largest") or {}).get("batch_size")}
    with figure() as (drawing, axes):
        batch_axis(axes, list(steps))
        plain_log_ticks(axes, steps.values())
        handles = axes.plot(list(steps), list(steps.values()), color=MUTED, zorder=1, label="trained")
        handles += _draw_prediction(axes, {b: predicted_steps(result, b) for b in _between(list(steps))}, result)
        for batch, number in steps.items():
            face = INK if batch in marked else PAPER
            axes.plot(batch, number, "o", ms=7, mec=INK, mfc=face, mew=1.4)
            if len(steps) <= 6 or batch in marked:
                _label(axes, batch, number, first=batch == min(steps))
        axes.margins(y=0.15)
        axes.set_ylabel("optimizer steps")
        legend_above(drawing, handles, 2)
        return to_svg(drawing, "steps", "Optimizer steps against batch size")


def time_figure(result: Result) -> str:
    """Time of a run against batch size at the speed measured, a line per optimizer."""
    lines = {name: _times(result, name) for name in optimizers(result)}
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        return ""
    all_times = [time for line in lines.values() for time in line.values()]
    seconds, unit = time_unit(max(all_times))
    with figure() as (drawing, axes):
        batch_axis(axes, [batch for line in lines.values() for batch in line])
        plain_log_ticks(axes, all_times)
        handles: list[Any] = []
        for name, line in lines.items():
            index, times = optimizers(result).index(name), [time / seconds for time in line.values()]
            style: dict[str, Any] = {"color": colour_of(index), "ls": dashes_of(index), "label": name}
            handles += axes.plot(list(line), times, marker=marker_of(index), ms=6, **style)
        own = lines.get(str(reference_optimizer(result)), {})
        handles += _draw_prediction(axes, {b: _predicted_time(result, b, t, seconds) for b, t in own.items()}, result)
        axes.set_ylabel(f"time of one run, {unit}")
        legend_above(drawing, handles, 2)
        return to_svg(drawing, "time", "Time of one run against batch size")


def _label(axes: Axes, batch: int, number: int, *, first: bool) -> None:
    """The number of steps, below the falling lines; the first one, which has the axis there, above them."""
    offset, side = ((6.0, 4.0), "left") if first else ((-5.0, -12.0), "right")
    axes.annotate(count(number), (batch, number), offset, textcoords="offset points", ha=side, fontsize=9)


def _draw_prediction(axes: Axes, line: Mapping[float, float | None], result: Result) -> list[Any]:
    known = {batch: value for batch, value in line.items() if value is not None}
    if len(known) < 2:
        return []
    label = f"needed, for a noise scale of {count(reference_noise_scale(result))}"
    return list(axes.plot(list(known), list(known.values()), label=label, **PREDICTION))


def _between(batches: list[int]) -> list[float]:
    """Points from the smallest to the largest batch, close enough for a smooth line on a logarithmic axis."""
    low, high = min(batches), max(batches)
    return [low * (high / low) ** (index / 40) for index in range(41)]


def _times(result: Result, optimizer: str) -> dict[int, float]:
    """Batch size -> seconds of a run, without evaluation."""
    return {
        batch: arm["steps"] * batch / arm["samples_per_second"]
        for batch, arm in arms_by_batch(result, optimizer).items()
        if arm.get("steps") and arm.get("samples_per_second")
    }


def _predicted_time(result: Result, batch: int, time: float, unit: float) -> float | None:
    """The time of the steps predicted, at the speed measured at this batch, in the axis's unit."""
    needed, trained = predicted_steps(result, batch), steps_by_batch(result).get(batch)
    return None if needed is None or not trained else time * needed / trained / unit
