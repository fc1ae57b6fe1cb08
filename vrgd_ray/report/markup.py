"""What the pages share: their frame, paragraphs and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from vrgd_ray.report.table import LEFT_ALIGNED, Row

_TEMPLATES = Path(__file__).parent


def html_page(template: str, *, title: str, **parts: str) -> str:
    """A whole page: the template filled with its parts, in the frame and the style that all pages have."""
    frame, body, style = (
        (_TEMPLATES / name).read_text(encoding="utf-8") for name in ("frame.html", template, "style.css")
    )
    return Template(frame).substitute(title=escape(title), style=style, body=Template(body).substitute(parts))


def paragraphs(kind: str, sentences: Iterable[str]) -> str:
    """Each sentence as a paragraph of this class."""
    return "\n".join(f'<p class="{kind}">{escape(sentence)}</p>' for sentence in sentences)


def html_table(
    rows: list[Row],
    *,
    chosen: tuple[str, str] | None = None,
    left_aligned: Sequence[str] = LEFT_ALIGNED,
) -> str:
    """Rows as an HTML table, which becomes a card per row where the screen is narrow; the chosen row stands out."""
    header, *body = rows
    head = "".join(f"<th{_words(name, left_aligned)}>{escape(name)}</th>" for name in header)
    lines = [_row(header, row, left_aligned, is_chosen=tuple(row[:2]) == chosen) for row in body]
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody></table>"
    return f'<div class="sheet">{table}</div>'


def _row(header: Row, row: Row, left_aligned: Sequence[str], *, is_chosen: bool) -> str:
    cells = [_cell(name, text, left_aligned) for name, text in zip(header, row, strict=True)]
    opening = '<tr class="chosen">' if is_chosen else "<tr>"
    return f"{opening}{''.join(cells)}</tr>\n"


def _cell(name: str, text: str, left_aligned: Sequence[str]) -> str:
    shown = re.sub(r"(?<!\w)-(?=\d)", "&minus;", escape(text).replace("+-", "±"))
    if name == "verdict":
        shown = f'<span class="{_tone(text)}">{shown}</span>'
    return f'<td{_words(name, left_aligned)} data-name="{escape(name)}">{shown}</td>'


def _words(name: str, left_aligned: Sequence[str]) -> str:
    return ' class="words"' if name in left_aligned else ""


def _tone(verdict: str) -> str:
    return next((tone for tone in ("accepted", "rejected") if verdict.startswith(tone)), "open")
