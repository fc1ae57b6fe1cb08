"""The table shows every cell, in order, whatever is missing."""

import pytest
import synthetic_results as synthetic

from vrgd_ray.report import recipe_rows, table_rows, text_table
from vrgd_ray.report.units import count, duration


def test_rows_stand_in_order_of_batch_after_reference_and_control():
    batches = [row[0] for row in table_rows(synthetic.full())[1:]]
    assert batches == ["32", "32", "64", "64", "128", "128", "256", "256", "512", "512"]


def test_a_cell_is_written_with_spread_bounds_and_claim():
    row = table_rows(synthetic.full())[3]
    assert row == ["64", "adamw", "97.34 +- 0.22 (5)", "-0.06 [-0.41, +0.29]", "accepted (confirmed)", "515", "47,502"]


def test_a_cell_whose_trials_all_diverged_says_so():
    empty = {"mean": None, "std": None, "difference": None, "values": [], "steps": None, "recipe": None, "diverged": 8}
    lost = synthetic.cell(512, "adamw", 0.0, "reject", "not tested") | empty
    row = table_rows(synthetic.full(cells=[lost]))[-1]
    assert row[2:6] == ["-", "-", "rejected: all trials diverged", "-"]
    assert table_rows(synthetic.full(cells=[lost | {"diverged": 1}]))[-1][4] == "rejected: a seed diverged"


def test_a_lost_seed_leaves_no_bounds_beside_the_verdict():
    lost = synthetic.cell(64, "adamw", -0.0006, "reject", "not tested", reason="a seed diverged")
    control = synthetic.full()["control"] | {"verdict": "reject"}
    rows = table_rows(synthetic.full(cells=[lost], control=control | {"reason": "RuntimeError: lost"}))
    assert [row[3:5] for row in rows[2:]] == [
        ["-", "control could not be trained"],
        ["-", "rejected: a seed diverged"],
    ]
    assert table_rows(synthetic.full(control=control))[2][3:5] == ["-", "control rejected: a seed was lost"]


def test_a_cell_between_its_looks_is_undecided_and_shows_no_bounds():
    begun = synthetic.cell(64, "adamw", -0.0006, "not tested", "not tested")
    control = synthetic.full()["control"] | {"verdict": "not tested"}
    rows = table_rows(synthetic.full(cells=[begun], control=control, status="stopped"))
    assert [row[3:5] for row in rows[2:]] == [["-", "control undecided"], ["-", "undecided"]]


@pytest.mark.parametrize("make", synthetic.ALL)
def test_columns_line_up(make):
    lines = text_table(make()).splitlines()
    start = lines[0].index("verdict")
    assert len(lines) == len(table_rows(make())) + 1
    assert all(line[start - 1] == " " and line[start] != " " for line in lines[2:])


def test_recipes_show_what_differs_and_blank_what_is_unused():
    header, reference, *_ = recipe_rows(synthetic.full())
    assert header == ["batch_size", "optimizer", "lr", "warmup_fraction", "gsnr_lower"]
    assert reference == ["32", "adamw", "0.0031", "0", "-"]
    assert recipe_rows(synthetic.interrupted()) == []


def test_metrics_that_are_no_shares_keep_their_unit():
    assert table_rows(synthetic.smaller_is_better())[1][2] == "2.000 +- 0.100 (3)"


def test_numbers():
    assert [count(None), count(1031), count(12345.6)] == ["-", "1031", "12,346"]
    assert [duration(5), duration(204), duration(7320)] == ["5 s", "3 min 24 s", "2 h 2 min"]
