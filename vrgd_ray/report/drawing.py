"""The common ground of all figures: size, palette, batch axis, and SVG that fits into a page or stands alone."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vrgd_ray.report.units import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (4.5, 3.3)  # inches: small enough that its labels stay legible across a phone

# Okabe and Ito's palette, which the colour-blind can tell apart. A page may restyle each through its CSS variable.
SERIES = ("#0072b2", "#d55e00", "#cc79a7", "#56b4e9", "#e69f00")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
SAFE = "#009e73"  # the band within the margin
INK, MUTED, GRID, PAPER = "#1c1e21", "#666a70", "#dfe1e4", "#fefefe"
VARIABLES = {SAFE: "safe", INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {
    colour: f"series-{index}" for index, colour in enumerate(SERIES)
}

BACKED: dict[str, Any] = {"bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}}
"""Options of a text that stays legible where lines cross it."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "vrgd",  # the same result gives the same page, to the byte
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and takes the page's font
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,  # a "$" in a name is a "$"
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
}


def colour_of(index: int) -> str:
    """Colour of the index-th optimizer."""
    return SERIES[index % len(SERIES)]


def dashes_of(index: int) -> Any:
    """Line style of the index-th optimizer: it sets apart those that share a colour."""
    return DASHES[index // len(SERIES) % len(DASHES)]


def marker_of(index: int) -> str:
    """Marker of the index-th optimizer, where the marker does not tell its verdict."""
    return MARKERS[index % len(MARKERS)]


def shades(batches: list[int]) -> dict[int, str]:
    """A colour per batch size, from blue for the smallest to ochre, all visible on light and dark paper."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    ramp = LinearSegmentedColormap.from_list("batch", ["#2f7fd0", "#8a64c8", "#c9558f", "#e8763a", "#d9a400"])
    last = max(1, len(batches) - 1)
    return {batch: to_hex(ramp(index / last)) for index, batch in enumerate(batches)}


@contextmanager
def figure(size: tuple[float, float] = SIZE) -> Iterator[tuple[Figure, Axes]]:
    """Yield an empty figure and its axes in the common style, without touching pyplot's global state."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=size, layout="constrained")
        yield drawing, drawing.add_subplot()


def to_svg(drawing: Figure, name: str, description: str) -> str:
    """Render a figure as an SVG element that scales with its container and whose ids begin with `name`."""
    text = io.StringIO()
    about = {"Date": None, "Creator": None, "Title": description}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # only measured here; the reader's fonts show it
        drawing.savefig(text, format="svg", transparent=True, metadata=about)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href").replace('xmlns:xlink="http://www.w3.org/1999/xlink" ', "")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r'\1 role="img"', svg, count=1)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return _restylable(svg)


def _restylable(svg: str) -> str:
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable}, {colour})")
    return svg


def batch_axis(axes: Axes, batches: list[int]) -> None:
    """Make x the base-2 logarithm of the batch, marked with the batch sizes themselves as plain numbers."""
    shown = thinned(sorted(set(batches)))
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [str(batch) for batch in shown])
    axes.set_xticks([], minor=True)
    axes.set_xlim(min(batches) / 1.35, max(batches) * 1.35)
    axes.set_xlabel("batch size")


def samples_axis(axes: Axes) -> None:
    """Mark x, the samples seen, with short numbers such as 20k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("samples seen")


def plain_log_ticks(axes: Axes, values: Collection[float]) -> None:
    """Make y logarithmic, marked with plain numbers instead of powers: the more of them, the closer the values lie."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    close = max(values) < 12 * min(values)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if close else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_above(drawing: Figure, handles: list[Any], columns: int = 3) -> None:
    """Put the legend above the axes, where it can cover no data; it is read row by row."""
    for handle in handles:
        handle.set_label(shortened(handle.get_label()))
    by_column = [handle for column in range(columns) for handle in handles[column::columns]]
    drawing.legend(handles=by_column, loc="outside upper left", ncols=columns)


def thinned(batches: list[int], room: int = 24) -> list[int]:
    """Every batch, or every second, third ... from the largest down: at most `room` digits, so that none touch."""
    strides = ([*batches[::-1][::stride]][::-1] for stride in range(1, len(batches)))
    return next((shown for shown in strides if sum(len(str(batch)) for batch in shown) <= room), batches[-1:])
