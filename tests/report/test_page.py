"""The page is well-formed, needs nothing from outside, and lets no value of a result become markup."""

import math
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import synthetic_results as synthetic

from vrgd_ray.report import render_html
from vrgd_ray.report.cost_plot import steps_figure, time_figure
from vrgd_ray.report.curves_plot import learning_curves
from vrgd_ray.report.metric_plot import metric_by_batch
from vrgd_ray.report.series_plots import noise_figure, scale_figures
from vrgd_ray.report.tuning_plots import importance_figure, parallel_figures

VOID = {"meta", "link", "br", "img", "hr", "input"}
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
BY_BATCH = [metric_by_batch, learning_curves, steps_figure, time_figure]
FIGURES = [*BY_BATCH, noise_figure, importance_figure]


@cache
def page_of(make):
    return render_html(make())


class Strict(HTMLParser):
    """Refuses tags that are not closed in order; keeps ids, text and every attribute."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("make", synthetic.ALL)
def test_the_page_is_well_formed_with_unique_ids(make):
    page = Strict(page_of(make))
    ids = Counter(attributes["id"] for _, attributes in page.found if "id" in attributes)
    assert max(ids.values(), default=1) == 1
    references = {a["href"] for _, a in page.found if a.get("href")}
    assert all(target.startswith("#") and target[1:] in ids for target in references)


@pytest.mark.parametrize("make", synthetic.ALL)
def test_the_page_needs_nothing_from_outside(make):
    text = page_of(make)
    assert "://" not in text.replace(SVG_NAMESPACE, "")
    assert not re.search(r"@import|url\((?!#)", text)
    tags = {tag for tag, _ in Strict(text).found}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not [a for _, attributes in Strict(text).found for a in attributes if a.startswith("on") or a == "src"]


def test_no_value_becomes_markup():
    attack = "\"'><script>alert(1)</script><img src=x onerror=alert(1)> $\\frac{a}$ &amp; ${headline}"
    result = synthetic.full(name=attack, pipeline=attack, command=attack, metric=attack, status=attack)
    result["versions"] = {attack: attack}
    result["recommended"] = {"command": attack, "recipe": {attack: attack}}
    result["tuning"][0]["trials"][0]["values"] |= {attack: 1.0, "schedule": attack}
    for cell in result["cells"] + result["curves"] + result["tuning"] + result["importances"]:
        cell["optimizer"] = attack
    result["cells"][0]["recipe"][attack] = result["cells"][0]["verdict"] = attack
    result["optimizers"] = [attack]
    page = Strict(render_html(result))
    assert not {tag for tag, _ in page.found} & {"script", "img"}
    assert attack in page.text


def test_the_verdict_comes_first_and_the_chosen_row_is_marked():
    text = render_html(synthetic.full())
    assert text.index("<h1>Largest batch without loss: 256") < text.index("Margin") < text.index("<svg")
    assert text.count('<tr class="chosen">') == 1
    assert text.count("<figure>") == 4 + 2 + 2 + 1  # and trials of two optimizers, and the scale of one
    assert render_html(synthetic.many_cells()).count('<tr class="chosen">') == 1  # though written 16,384
    assert "<tr" not in render_html(synthetic.nothing_known())


def test_the_page_says_how_to_reproduce():
    told = Strict(render_html(synthetic.full())).text
    for line in ("--seed 0", "--concurrent-trials 2", "training samples 1100", "data fingerprint d32c235b700dc8fe"):
        assert line in told[told.index("How to reproduce") :]
    assert "data fingerprint none: where the search was started" in Strict(render_html(synthetic.one_cell())).text


@pytest.mark.parametrize("draw", BY_BATCH)
def test_a_figure_is_an_svg_that_stands_alone_and_keeps_its_words(draw):
    svg = draw(synthetic.full())
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{{{SVG_NAMESPACE}}}svg"
    assert {"viewBox", "role"} <= set(root.attrib)
    assert "width" not in root.attrib
    words = {text.text for text in root.iter(f"{{{SVG_NAMESPACE}}}text")}
    assert {"64", "128", "256", "512"} <= words


@pytest.mark.parametrize("draw", [*FIGURES, scale_figures, parallel_figures])
def test_nothing_is_drawn_where_nothing_is_known(draw):
    assert not draw(synthetic.nothing_known())


def test_a_collapsed_cell_does_not_flatten_the_margin():
    svg = metric_by_batch(synthetic.smaller_is_better())
    words = {text.text for text in ElementTree.fromstring(svg).iter(f"{{{SVG_NAMESPACE}}}text")}
    assert "9.10" in words
    assert not {"6", "8", "10"} & words


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("points", [slice(0, 1), slice(0, 15), slice(None)], ids=["first", "half", "all"])
def test_what_is_not_finite_is_not_drawn(value, points):
    result = synthetic.full(tuning=[], importances=[])
    for curve in result["curves"]:
        for line in (curve["values"], *curve["series"].values()):
            line[points] = [value] * len(line[points])
    result["cells"][0] |= {"lower": value, "upper": value}
    assert not re.search(r"\b(nan|inf)\b", render_html(result).partition("<figure>")[2].lower())


def test_one_point_and_equal_values_can_be_drawn():
    for last in (1, None):
        result = synthetic.full(tuning=[], importances=[])
        for curve in result["curves"]:
            curve["samples"] = curve["samples"][:last]
            curve["values"] = [0.5] * len(curve["samples"])
            curve["series"] = {name: [0.5] * len(curve["samples"]) for name in curve["series"]}
        assert render_html(result).count("<figure>") == 4 + 1 + 1


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    metric_by_batch(synthetic.full())
    assert dict(matplotlib.rcParams) == before


def test_the_same_result_gives_the_same_page_in_any_process():
    code = "import synthetic_results as s, hashlib; from vrgd_ray.report import render_html; "
    code += "print(hashlib.sha256(render_html(s.full()).encode()).hexdigest())"
    path = os.pathsep.join([str(Path(synthetic.__file__).parent), *sys.path])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
