"""Learning-rate schedules at their ends, behind a warm-up, and everywhere in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray import ConfigError
from vrgd_ray.schedules import SCHEDULES, Constant, Cosine, Polynomial, Warmup, create_schedule


@pytest.mark.parametrize(
    ("name", "first", "middle", "last"),
    [
        ("constant", 1.0, 1.0, 1.0),
        ("cosine", 1.0, 0.5, 0.0244717),
        ("linear", 1.0, 0.5, 0.1),
        ("polynomial", 1.0, 0.25, 0.01),
    ],
)
def test_known_values_over_ten_steps(name, first, middle, last):
    schedule = create_schedule(name)
    assert [schedule.factor(step, 10) for step in (0, 5, 9)] == pytest.approx([first, middle, last], rel=1e-5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_warmup_climbs_in_equal_steps_to_the_peak_and_then_the_schedule_starts_anew(name):
    schedule = create_schedule(name, 0.25)
    assert [schedule.factor(step, 16) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert [schedule.factor(step, 16) for step in range(4, 16)] == [
        create_schedule(name).factor(step, 12) for step in range(12)
    ]


@pytest.mark.parametrize("schedule", [Cosine(), Polynomial(power=1.0), Polynomial(power=2.0)])
def test_decaying_schedules_would_be_zero_after_the_last_step(schedule):
    assert schedule.factor(100, 100) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("fraction", [0.0, 0.4, 0.6, 1.0])
def test_a_single_step_runs_at_the_peak(name, fraction):
    assert create_schedule(name, fraction).factor(0, 1) == 1.0


def test_a_warmup_over_the_whole_run_ends_at_the_peak():
    assert [Warmup(Cosine(), 1.0).factor(step, 4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@given(st.data())
def test_factors_stay_within_zero_and_one_and_only_fall_after_the_warmup(data):
    total = data.draw(st.integers(1, 300))
    fraction = data.draw(st.floats(0.0, 1.0))
    schedule = create_schedule(data.draw(st.sampled_from(sorted(SCHEDULES))), fraction)
    factors = [schedule.factor(step, total) for step in range(total)]
    assert all(0.0 <= factor <= 1.0 for factor in factors)
    assert max(factors) == 1.0
    rest = factors[factors.index(1.0) :]
    assert rest == sorted(rest, reverse=True)


def test_schedules_compare_by_value():
    assert create_schedule("linear", 0.1) == Warmup(Polynomial(power=1.0), 0.1) != Warmup(Constant(), 0.1)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown schedule 'cosin': did you mean 'cosine'"):
        create_schedule("cosin")
