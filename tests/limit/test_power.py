"""The stated power is what the criterion does, look by look, on simulated seeds."""

import time

import numpy as np
import pytest
from simulation import Seeds

from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.criterion import Criterion, smallest_detectable_margin
from vrgd_ray.limit.power import acceptance, smallest_margin


def acceptance_rate(criterion, repetitions=6000, spread=0.7, difference=0.0):
    generator = np.random.default_rng(11)
    accepted = 0
    for _ in range(repetitions):
        contest = Contest(Seeds(generator.normal(difference, spread, criterion.looks[-1])), criterion)
        contest.judge(Seeds(generator.normal(0.0, spread, criterion.looks[-1])))
        accepted += contest.verdict == "accept"
    return accepted / repetitions


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_at_a_margin_of_one_and_a_half_deviations_equal_cells_pass_at_the_stated_rate(paired, alpha):
    rule = Criterion(margin=1.5 * 0.7, mode="max", alpha=alpha, paired=paired)
    stated = acceptance(rule, 1.5)
    assert 0.3 < stated < 0.95
    assert acceptance_rate(rule) == pytest.approx(stated, abs=0.02)


def test_one_look_agrees_with_the_noncentral_t():
    rule = Criterion(margin=1.0, mode="max", alpha=0.05, looks=(10,))
    assert smallest_margin(rule) == pytest.approx(smallest_detectable_margin(10, 0.05), rel=0.02)
    assert acceptance(rule, smallest_margin(rule)) == pytest.approx(0.8, abs=0.001)


def test_a_second_look_sees_more_than_either_alone():
    both = Criterion(margin=1.0, mode="max", alpha=0.05, looks=(5, 10))
    assert smallest_margin(both) < min(smallest_detectable_margin(n, both.level) for n in (5, 10))


def test_power_grows_with_the_margin_and_vanishes_without_one():
    rule = Criterion(margin=1.0, mode="max")
    rates = [acceptance(rule, margin) for margin in (0.0, 0.5, 1.0, 2.0, 5.0)]
    assert rates == sorted(rates)
    assert rates[0] < 0.05
    assert rates[-1] > 0.999


def test_it_is_quick_whatever_the_number_of_seeds_and_gives_the_same_each_time():
    rule = Criterion(margin=1.0, mode="max", alpha=0.043, looks=(200, 400))
    started = time.process_time()
    first = acceptance(rule, 0.2)
    assert time.process_time() - started < 0.2
    assert acceptance(rule, 0.2) == first
