"""Figures of the tables, as small SVG files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.reproduction.arms import Arm, Arms
from benchmarks.reproduction.regression import BATCH_SIZE, SETTING, STEPS, Measured
from benchmarks.reproduction.rows import Row
from vrgd_ray.report.drawing import INK, MUTED, PAPER, STYLE, batch_axis, colour_of, samples_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {"base": "base", "vr": "VR", "constant": "VR, constant scale", "shuffled": "VR, shuffled scale"}
_PANEL = (3.4, 2.5)  # inches


def grid_figure(arms: Arms, unit: str, path: Path) -> None:
    """Above, the metric of every family against the batch; below, VR minus base with its 95 % interval."""
    families = arms.families
    with _drawing(2, len(families), path) as panels:
        for column, family in enumerate(families):
            _metric(panels[0][column], arms, family)
            _difference(panels[1][column], arms, family)
            panels[0][column].set_title(family)
        panels[0][0].set_ylabel(unit)
        panels[1][0].set_ylabel("VR - base")
        panels[0][0].legend()


def variants_figure(arms: Arms, path: Path) -> None:
    """Every variant minus base, with its 95 % interval, one below the other."""
    found = arms.differences(arms.families[0], next(iter(arms.values)).batch_size)
    with _drawing(1, 1, path, panel=(5.5, 0.7 + 0.28 * len(found))) as panels:
        axes = panels[0][0]
        places = range(len(found))
        axes.axvline(0, color=MUTED, lw=1)
        axes.errorbar(
            [d.mean for d in found.values()],
            places,
            xerr=[d.reach for d in found.values()],
            ls="",
            marker="o",
            ms=4,
            capsize=3,
            color=INK,
        )
        axes.set_yticks(places, list(found))
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel("minus base, points")


def regression_figure(curves: Sequence[Row], found: Sequence[Measured], path: Path) -> None:
    """Loss against steps for each upper bound, then the step at which SGD's last loss is reached over each setting."""
    with _drawing(1, 4, path) as panels:
        _losses(panels[0][0], curves)
        for axes, name, label in zip(
            panels[0][1:],
            ("gsnr_upper", "gsnr_lower", "num_groups"),
            ("upper bound", "lower bound", "groups"),
            strict=True,
        ):
            _steps(axes, found, name)
            axes.set_xlabel(label)
        panels[0][1].set_ylabel("steps to SGD's last loss")


def noise_figure(curves: Sequence[Row], limits: Sequence[Row], path: Path) -> None:
    """The reference's noise scale over training, with its 95 % interval, and the largest accepted batches."""
    with _drawing(1, 1, path) as panels:
        axes = panels[0][0]
        first = limits[0]
        own = [c for c in curves if (c["variant"], c["batch_size"]) == ("base", first["reference_batch_size"])]
        _noise(axes, own)
        for place, row in enumerate(limits):
            if row["largest_accepted"] is not None:
                style = ("-", (0, (4, 3)))[place % 2]
                axes.axhline(row["largest_accepted"], color=colour_of(place), ls=style, label=row["optimizer"])
        axes.set_ylabel("samples")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(title="largest accepted batch")


@contextmanager
def _drawing(rows: int, columns: int, path: Path, panel: tuple[float, float] = _PANEL) -> Iterator[Any]:
    """Panels in the reports' style, written to a file at the end of the block."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": path.stem, "font.size": 9, "legend.fontsize": 8}):
        drawing = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained", facecolor=PAPER)
        yield drawing.subplots(rows, columns, squeeze=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _metric(axes: Axes, arms: Arms, family: str) -> None:
    for place, (variant, label) in enumerate(LABELS.items()):
        batches = [b for b in arms.batch_sizes(family, variant) if arms.values[Arm(family, variant, b)]]
        seeds = [list(arms.values[Arm(family, variant, b)].values()) for b in batches]
        means = [statistics.fmean(values) for values in seeds]
        spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in seeds]
        if batches:
            shifted = [batch * 1.04 ** (place - 1) for batch in batches]
            # A control is trained at a few batch sizes only: a line would tell of those between.
            line = "-" if variant in ("base", "vr") else ""
            style: dict[str, Any] = {
                "marker": "o",
                "ms": 3,
                "capsize": 2,
                "ls": line,
                "color": colour_of(place),
                "label": label,
            }
            axes.errorbar(shifted, means, spreads, **style)
    batch_axis(axes, arms.batch_sizes(family))


def _difference(axes: Axes, arms: Arms, family: str) -> None:
    batches = arms.batch_sizes(family)
    found = [(b, d) for b in batches if (d := arms.difference(family, b)) is not None]
    axes.axhline(0, color=MUTED, lw=1)
    axes.errorbar(
        [b for b, _ in found],
        [d.mean for _, d in found],
        [d.reach for _, d in found],
        ls="",
        marker="o",
        ms=4,
        capsize=3,
        color=INK,
    )
    # A batch at which training collapses spreads ten times as far: linear within a point, logarithmic beyond.
    axes.set_yscale("symlog", linthresh=1.0)
    farthest = max((abs(d.mean) + d.reach for _, d in found if math.isfinite(d.reach)), default=1.0)
    shown = [tick for tick in (1, 3, 10, 30) if tick < 3 * farthest]
    axes.set_yticks([*(-tick for tick in shown), 0, *shown], [*(f"-{tick}" for tick in shown), "0", *map(str, shown)])
    axes.set_yticks([], minor=True)
    batch_axis(axes, batches)


def _losses(axes: Axes, curves: Sequence[Row]) -> None:
    settings = [v for v in dict.fromkeys(row["variant"] for row in curves) if v.startswith("gsnr_upper")]
    shown = {"base": "SGD"} | {name: f"VR, upper {name.rpartition('_')[2]}" for name in settings}
    search = next(row["search"] for row in curves)
    for place, (variant, label) in enumerate(shown.items()):
        rows = [r for r in curves if r["variant"] == variant and (variant != "base" or r["search"] == search)]
        axes.plot(
            [r["samples"] / BATCH_SIZE for r in rows], [r["value"] for r in rows], color=colour_of(place), label=label
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss")
    axes.legend()


def _steps(axes: Axes, found: Sequence[Measured], name: str) -> None:
    own = [m for m in found if all(getattr(m, other) == v for other, v in SETTING.items() if other != name)]
    own.sort(key=lambda m: float(getattr(m, name)))
    places = [getattr(m, name) for m in own]
    axes.plot(places, [m.step or STEPS for m in own], color=INK, lw=1)
    for measured, place in zip(own, places, strict=True):
        never = measured.step is None
        axes.plot(place, measured.step or STEPS, marker="x" if never else "o", color=INK, ms=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 105)


def _noise(axes: Axes, rows: Sequence[Row]) -> None:
    known = [row for row in rows if row["noise_scale"] is not None]
    samples = [row["samples"] for row in known]
    axes.plot(samples, [row["noise_scale"] for row in known], color=INK)
    bounded = [row for row in known if None not in (row["noise_scale_low"], row["noise_scale_high"])]
    axes.fill_between(
        [row["samples"] for row in bounded],
        [max(row["noise_scale_low"], 1.0) for row in bounded],
        [row["noise_scale_high"] for row in bounded],
        color=MUTED,
        alpha=0.25,
        lw=0,
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks([], minor=True)
    samples_axis(axes)
