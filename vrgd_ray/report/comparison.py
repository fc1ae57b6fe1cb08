"""Several searches side by side on one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from vrgd_ray.report.markup import html_page, html_table, paragraphs
from vrgd_ray.report.metric_plot import metric_by_batch
from vrgd_ray.report.reading import Result, find_cell, reference_batch, reference_optimizer
from vrgd_ray.report.sentences import caveats, headline
from vrgd_ray.report.units import MISSING, Units, count, duration, shortened, times

NUMBERS = ("search", "largest batch", "optimizer", "metric", "reference", "margin", "steps saved", "trials", "cost")


def render_comparison(results: Sequence[Result]) -> str:
    """Return one HTML page with the verdict, the key numbers and the metric figure of every search."""
    names = [str(result.get("name", "search")) for result in results]
    rows = [[*NUMBERS], *(_numbers(result) for result in results)]
    return html_page(
        "comparison.html",
        title=f"Comparison: {', '.join(names)}",
        headline=escape(f"{len(results)} searches side by side"),
        caveats=paragraphs("caveat", differences(results)),
        verdicts="\n".join(_card(result, f"search-{index}") for index, result in enumerate(results)),
        table=html_table(rows, left_aligned=("search", "optimizer", "metric", "reference", "cost")),
    )


def differences(results: Sequence[Result]) -> list[str]:
    """What the searches do not share, so that their numbers cannot simply be compared."""
    asked = {
        "metric": "They measure different metrics",
        "pipeline": "They train different pipelines",
        "data_fingerprint": "Their data differ, by the fingerprint",
        "margin": "Their margins differ",
    }
    different = [text for name, text in asked.items() if len(_known(results, name)) > 1]
    return [f"{text}: {', '.join(_known(results, name))}." for name, text in asked.items() if text in different]


def _known(results: Sequence[Result], name: str) -> list[str]:
    """The distinct values of a field, those that lack it left out."""
    shown = [Units.of(result).margin(result) if name == "margin" else result.get(name) for result in results]
    return list(dict.fromkeys(str(value) for value in shown if value is not None))


def _card(result: Result, prefix: str) -> str:
    """Verdict and figure of one search; ids carry the prefix, since every search brings the same ones."""
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", metric_by_batch(result))
    notes = paragraphs("note", caveats(result))
    title = f"<h3>{escape(str(result.get('name', 'search')))}</h3>"
    return f'<figure>{title}\n<p class="lead">{escape(headline(result))}</p>\n{notes}\n{svg}</figure>'


def _numbers(result: Result) -> list[str]:
    largest, cost, units = result.get("largest") or {}, result.get("cost") or {}, Units.of(result)
    cell = find_cell(result, largest["batch_size"], largest["optimizer"]) if largest else None
    before = (result.get("reference") or {}).get("steps")
    saved = times(before / cell["steps"]) if cell and cell.get("steps") and before else MISSING
    return [
        str(result.get("name", "search")),
        count(largest.get("batch_size")),
        str(largest.get("optimizer") or MISSING),
        f"{shortened(str(result.get('metric')))} {units.value((cell or {}).get('mean'), 1)}",
        f"{units.value((result.get('reference') or {}).get('mean'), 1)} at {count(reference_batch(result))} with "
        f"{reference_optimizer(result)}",
        units.margin(result),
        saved,
        count(cost.get("trials")),
        f"{count(cost.get('samples'))} samples, {duration(cost.get('seconds'))}",
    ]
