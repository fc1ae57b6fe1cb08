"""The result of a search for people: sentences and a table for the terminal, figures and one self-contained page.

Everything here is a pure function of the parsed `result.json`; matplotlib is imported only when a figure is drawn.
"""

from vrgd_ray.report.comparison import render_comparison
from vrgd_ray.report.page import render_html
from vrgd_ray.report.sentences import control_sentence, scale_sentence, summary_sentence
from vrgd_ray.report.table import recipe_rows, table_rows, text_table

__all__ = [
    "control_sentence",
    "recipe_rows",
    "render_comparison",
    "render_html",
    "scale_sentence",
    "summary_sentence",
    "table_rows",
    "text_table",
]
