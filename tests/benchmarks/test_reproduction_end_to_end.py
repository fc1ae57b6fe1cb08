"""A whole table in tiny: two searches by `vrgd tune`, the second from what the first tuned, then figure and page."""

from dataclasses import replace

import pytest

from benchmarks.reproduction import figures, pages
from benchmarks.reproduction.arms import Arm, Arms
from benchmarks.reproduction.protocols import DIGITS
from benchmarks.reproduction.results import Results
from benchmarks.reproduction.searches import Searches


@pytest.mark.slow
@pytest.mark.long
def test_a_table_of_the_digits(tmp_path):
    tiny = replace(DIGITS, batch_sizes=(32, 128), tuned_batch_sizes=(32, 128), recipe={"epochs": 2}, trials=2, seeds=2)
    found = list(tiny.scaled(Searches(tmp_path / "runs", ("--concurrent-trials", "2")).run, ""))
    assert [search.name for search, _ in found] == ["digits_scaled_adamw"]
    results = Results(tmp_path / "results", "tiny")
    results.write(found)
    arms = Arms(results.seeds, scale=100)
    assert len(arms.values) == 4
    assert all(len(values) == 2 for values in arms.values.values())
    assert arms.rates[Arm("adamw", "vr", 128)] == pytest.approx(2 * arms.rates[Arm("adamw", "base", 32)])
    figures.grid_figure(arms, "accuracy, %", results.figure)
    assert "| adamw | 128 |" in pages.grid_page("Tiny", "command", "accuracy, %", arms)
