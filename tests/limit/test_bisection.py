"""Where a bracket is cut, and how often."""

import pytest

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.bisection import Bisection


@pytest.mark.parametrize(
    ("low", "high", "unit", "resolution", "middle"),
    [
        (64, 128, 8, 1.25, 88),
        (88, 128, 8, 1.25, 104),
        (104, 128, 8, 1.25, None),  # 1.23: fine enough
        (64, 128, 8, 2.0, None),  # the rungs as they are
        (64, 256, 8, 2.0, None),
        (8, 16, 8, 1.1, None),  # no multiple between
        (16, 32, 8, 1.1, 24),
        (1000, 2000, 1, 1.001, 1414),
    ],
)
def test_it_is_cut_at_the_multiple_nearest_to_the_geometric_mean(low, high, unit, resolution, middle):
    assert Bisection(resolution=resolution, unit=unit).between(low, high) == middle


@pytest.mark.parametrize(("resolution", "tests"), [(2.0, 0), (1.5, 1), (1.25, 2), (1.1, 3)])
def test_the_worst_bracket_says_how_many_tests(resolution, tests):
    assert Bisection(resolution=resolution, unit=8).most_tests((32, 512, 1024, 2048)[1:]) == tests


def test_whatever_the_outcomes_no_bracket_takes_more_tests_than_announced():
    bisection, low, high = Bisection(resolution=1.05, unit=8), 128, 256
    announced = bisection.most_tests((low, high))
    for limit in range(low, high):
        a, b, tests = low, high, 0
        while (middle := bisection.between(a, b)) is not None:
            a, b, tests = (middle, b, tests + 1) if middle <= limit else (a, middle, tests + 1)
        assert tests <= announced
        assert b <= a * 1.05 or b - a == 8


@pytest.mark.parametrize("resolution", [1.0, 0.5, 2.5, float("nan")])
def test_a_resolution_out_of_range_is_refused(resolution):
    with pytest.raises(ConfigError, match="resolution"):
        Bisection(resolution=resolution)
