"""One self-contained HTML page: the verdict, the facts behind it, figures, the table, how to reproduce."""

from __future__ import annotations

from html import escape

from vrgd_ray.report.facts import facts
from vrgd_ray.report.figures import figures
from vrgd_ray.report.learning_rate import learning_rate_sentence
from vrgd_ray.report.markup import html_page, html_table, paragraphs
from vrgd_ray.report.reading import Result
from vrgd_ray.report.sentences import caveats, headline, scale_sentence
from vrgd_ray.report.table import recipe_rows, table_rows
from vrgd_ray.report.units import count, plain

TABLE_NOTE = (
    "Differences are oriented so that positive is better than the reference; the bounds are one-sided, at the level "
    "used for the verdict. Confirmed: accepted in order of batch size, without a failure below. Exploratory: accepted "
    "beyond a failure, a hint and not a claim."
)

NO_FINGERPRINT = "none: where the search was started the data could not be read, or not twice alike"


def render_html(result: Result) -> str:
    """Return the whole report as one HTML page that needs no network, no script and no other file."""
    sheet = recipe_rows(result)
    return html_page(
        "page.html",
        title=f"{result.get('name', 'search')}: largest batch without loss",
        subtitle=escape(_subtitle(result)),
        headline=escape(headline(result)),
        caveats=paragraphs("caveat", caveats(result)),
        leads=paragraphs("lead", _leads(result)),
        facts=_facts(result),
        figures=_figures(result),
        table=_everything(result),
        recipes=f"<h2>Chosen hyper-parameters</h2>\n{html_table(sheet)}" if sheet else "",
        reproduce=_reproduce(result),
    )


def _leads(result: Result) -> list[str]:
    return [sentence for sentence in (scale_sentence(result), learning_rate_sentence(result)) if sentence]


def _subtitle(result: Result) -> str:
    parts = [f"search {result.get('name', '')}", str(result.get("pipeline", "")), str(result.get("status", ""))]
    return " · ".join(part for part in parts if part)


def _facts(result: Result) -> str:
    items = [f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts(result)]
    return f'<dl class="facts">\n{"".join(items)}\n</dl>'


def _figures(result: Result) -> str:
    shown = [
        f"<figure><h3>{escape(figure.title)}</h3>\n{figure.svg}\n<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures(result)
    ]
    return '<h2>Figures</h2>\n<div class="figures">\n' + "\n".join(shown) + "\n</div>" if shown else ""


def _everything(result: Result) -> str:
    rows = table_rows(result)
    if len(rows) == 1:
        return ""
    table = html_table(rows, chosen=_chosen(result))
    return f'<h2>Everything that was tested</h2>\n{table}\n<p class="note">{escape(TABLE_NOTE)}</p>'


def _chosen(result: Result) -> tuple[str, str] | None:
    largest = result.get("largest")
    return (count(largest["batch_size"]), str(largest["optimizer"])) if largest else None


def _reproduce(result: Result) -> str:
    recommended = result.get("recommended") or {}
    recipe = "\n".join(f"{name}: {plain(value)}" for name, value in (recommended.get("recipe") or {}).items())
    versions = "\n".join(f"{name} {version}" for name, version in (result.get("versions") or {}).items())
    blocks = [
        ("This search", result.get("command")),
        ("Seed and data", _seed_and_data(result)),
        ("Train the recommended configuration", recommended.get("command")),
        ("Recommended configuration", recipe),
        ("Versions", versions),
    ]
    return "\n".join(f"<h3>{escape(name)}</h3>\n<pre>{escape(str(text))}</pre>" for name, text in blocks if text)


def _seed_and_data(result: Result) -> str:
    """What the command need not say, but the same suggestions and the same data depend on."""
    known = [
        ("--seed", result.get("seed")),
        ("--concurrent-trials", result.get("concurrent_trials")),
        ("training samples", result.get("num_train_samples")),
    ]
    lines = [f"{name} {value}" for name, value in known if value is not None]
    if "data_fingerprint" in result:
        lines.append(f"data fingerprint {result['data_fingerprint'] or NO_FINGERPRINT}")
    return "\n".join(lines)
