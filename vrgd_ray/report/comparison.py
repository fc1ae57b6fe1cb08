"""Several searches side by side on one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from vrgd_ray.report.markup import html_page, html_table, paragraphs
from vrgd_ray.report.metric_plot import metric_by_batch
from vrgd_ray.report.reading import Result, find_cell, reference_batch, reference_optimizer, reference_recipe
from vrgd_ray.report.sentences import caveats, headline
from vrgd_ray.report.units import MISSING, Units, count, duration, shortened, times

NUMBERS = ("search", "largest batch", "optimizer", "metric", "reference", "margin", "steps saved", "trials", "cost")


_PAIRED: dict[Any, str] = {True: "paired", False: "unpaired"}


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
    asked = [_asked(result) for result in results]
    told = {text: _distinct([each[text] for each in asked]) for text in asked[0]}
    return [f"{text}: {', '.join(values)}." for text, values in told.items() if len(values) > 1]


def _distinct(values: Sequence[Any]) -> list[str]:
    """Every value once, those that are not known left out."""
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values if value is not None]
    return list(dict.fromkeys(shown))


def _asked(result: Result) -> dict[str, Any]:
    """What a search was asked, by the words that say it differs; None where that is not known."""
    reference, start = result.get("reference") or {}, reference_batch(result)
    return {
        "They measure different metrics": result.get("metric"),
        "They do not agree on which metric is better": {"max": "larger", "min": "smaller"}.get(result.get("mode", "")),
        "They train different pipelines": result.get("pipeline"),
        "Their pipelines have different arguments": _arguments(result.get("pipeline_args")),
        "Their data differ, by the fingerprint": result.get("data_fingerprint"),
        "Their training sets have different sizes": result.get("num_train_samples"),
        "They train for different numbers of epochs": reference_recipe(result).get("epochs"),
        "Their references differ": f"{start} with {reference_optimizer(result)}" if start else None,
        "Their margins differ": Units.of(result).margin(result) if result.get("margin") is not None else None,
        "Their chances of a wrong claim differ": _share(result.get("alpha_total") or result.get("alpha")),
        "Their levels of one look differ": _share(result.get("level_per_look")),
        "They look after different numbers of seeds": _words(result.get("looks"), " and "),
        "Their seeds are compared in different ways": _PAIRED.get(result.get("paired")),
        "Their cells were tuned with different numbers of trials": reference.get("trials"),
        "They tried different batch sizes": _words(result.get("batch_sizes")),
        # Rungs only, before there was a choice.
        "They bracket the limit down to different ratios": float(result.get("resolution") or 2),
    }


def _arguments(given: dict[str, Any] | None) -> str | None:
    return None if given is None else " ".join(f"{name}={value}" for name, value in sorted(given.items())) or "none"


def _share(level: float | None) -> str | None:
    return None if level is None else f"{100 * level:.3g} %"


def _words(values: Sequence[int] | None, between: str = " ") -> str | None:
    return between.join(map(str, values)) if values else None


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
