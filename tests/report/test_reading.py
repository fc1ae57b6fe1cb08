"""Where an interval lies says what the verdict was: accepted means beyond the margin's line."""

import pytest
import synthetic_results as synthetic

from vrgd_ray.report.reading import confirmed_limit, direction, interval, margin_line, sorted_cells


@pytest.mark.parametrize("make", [synthetic.full, synthetic.smaller_is_better, synthetic.nothing_accepted])
def test_accepted_intervals_lie_beyond_the_line(make):
    result = make()
    sign, line = direction(result), margin_line(result)
    for cell in sorted_cells(result):
        worse, centre, better = (sign * end for end in interval(result, cell))
        assert worse < centre < better
        assert (worse > sign * line) == (cell["verdict"] == "accept")
        assert (better < sign * line) == (cell["verdict"] == "reject")


def test_the_line_of_an_absolute_and_of_a_relative_margin():
    assert margin_line(synthetic.full()) == pytest.approx(0.964)
    assert margin_line(synthetic.smaller_is_better()) == pytest.approx(2.1)


def test_limits_count_confirmed_cells_only():
    result = synthetic.full()
    result["cells"][-1] |= {"verdict": "accept", "claim": "exploratory"}
    assert confirmed_limit(result, "vr_adamw") == 256
    assert confirmed_limit(synthetic.nothing_accepted(), "adamw") == 32
    assert confirmed_limit(synthetic.nothing_accepted(), "vr_adamw") is None
