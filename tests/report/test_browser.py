"""The pages in a real browser: nothing to complain of, every figure visible, no sideways scrolling, print works."""

import browser
import pytest
import synthetic_results as synthetic

from vrgd_ray.report import render_comparison, render_html

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.find() is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed"),
]

PAGES = {make.__name__: make for make in synthetic.ALL}
SCREENS = {"phone": browser.PHONE, "desktop": browser.DESKTOP}

BOXES = "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect()).map(b => [b.width, b.height])"
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
HIDDEN_SIDEWAYS = """[...document.querySelectorAll('.sheet, pre, figure, dd')]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 60))"""
OUTSIDE = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(t => {
        const b = t.getBoundingClientRect();
        return b.left < box.left - 2 || b.right > box.right + 2 || b.top < box.top - 2 || b.bottom > box.bottom + 2;
    }).map(t => svg.querySelector('title')?.textContent + ': ' + t.textContent);
})"""
OVERLAPS = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    const pairs = boxes.flatMap((a, i) => boxes.slice(i + 1).map(b => [a, b]));
    return pairs.filter(([[, a], [, b]]) =>
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4
    ).map(([[a], [b]]) => svg.querySelector('title')?.textContent + ': ' + a + ' over ' + b);
})"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(render_html(make()), encoding="utf-8")
    compared = [make() for make in PAGES.values()]
    (folder / "comparison.html").write_text(render_comparison(compared), encoding="utf-8")
    return folder


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", [*PAGES, "comparison"])
def test_a_page_shows_whole_on_any_screen(tab, pages, name, screen):
    path = pages / f"{name}.html"
    tab.open(path, SCREENS[screen])
    assert tab.complaints() == []
    assert tab.requests() == [path.as_uri()]
    boxes = tab.evaluate(BOXES)
    assert len(boxes) == path.read_text(encoding="utf-8").count("<svg")
    assert all(width > 250 and height > 100 for width, height in boxes)
    scrolled, shown = tab.evaluate(WIDTHS)
    assert scrolled <= shown <= SCREENS[screen]["width"]
    assert tab.evaluate(HIDDEN_SIDEWAYS) == []
    assert tab.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("name", ["full", "smaller_is_better", "one_cell", "many_cells"])
def test_no_label_covers_another(tab, pages, name):
    tab.open(pages / f"{name}.html", browser.PHONE)
    assert tab.evaluate(OVERLAPS) == []


def test_the_verdict_is_on_the_first_screen_of_a_phone(tab, pages):
    tab.open(pages / "full.html", browser.PHONE)
    assert tab.evaluate("document.querySelector('h1').getBoundingClientRect().bottom") < browser.PHONE["height"]


def test_figures_take_the_colours_of_a_dark_page(tab, pages):
    colour = "getComputedStyle(document.querySelector('figure svg text')).fill"
    tab.open(pages / "full.html", dark=True)
    dark = tab.evaluate(colour)
    tab.open(pages / "full.html")
    light = tab.evaluate(colour)
    assert (light, dark) == ("rgb(28, 30, 33)", "rgb(231, 233, 236)")


@pytest.mark.parametrize("name", ["full", "many_cells", "comparison"])
def test_a_page_prints_within_the_paper(tab, pages, name):
    paper = {"width": 718, "height": 1047, "deviceScaleFactor": 1, "mobile": False}  # A4 without margins, at 96 dpi
    tab.open(pages / f"{name}.html", paper, media="print")
    scrolled, shown = tab.evaluate(WIDTHS)
    assert scrolled <= shown
    printed = tab.pdf()
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") > 1


def test_the_browser_would_complain(tab, tmp_path):
    """The checks above can fail: a page with everything wrong is caught by each."""
    (tmp_path / "bad.html").write_text(
        "<figure style='width: 300px; overflow: hidden'><svg viewBox='0 0 10 10' style='width: 3000px'>"
        "<text x='-5' y='5'>left</text><text x='-4' y='5'>over</text></svg></figure><pre>" + "x" * 900 + "</pre>"
        "<img src='missing.png'><script>console.error('no'); nothing()</script>"
    )
    tab.open(tmp_path / "bad.html", browser.PHONE)
    assert len(tab.complaints()) >= 3
    assert len(tab.requests()) == 2
    scrolled, shown = tab.evaluate(WIDTHS)
    assert scrolled > shown
    assert all(tab.evaluate(check) for check in (HIDDEN_SIDEWAYS, OUTSIDE, OVERLAPS))
