"""The criterion on seeds with known answers, and its error rates in simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.criterion import Criterion, compare, smallest_detectable_margin


def rule(**changes):
    return Criterion(**{"margin": 0.01, "mode": "max", "alpha": 0.05, "looks": (5, 10), **changes})


GOOD = [0.970, 0.972, 0.969, 0.971, 0.973]


def test_equal_arm_is_accepted():
    assert compare([0.971, 0.970, 0.972, 0.970, 0.972], GOOD, rule()).verdict == "accept"


def test_clearly_worse_arm_is_rejected():
    outcome = compare([v - 0.03 for v in (0.971, 0.970, 0.972, 0.970, 0.972)], GOOD, rule())
    assert outcome.verdict == "reject"
    assert outcome.upper < -0.01


def test_noisy_arm_is_inconclusive():
    assert compare([0.99, 0.94, 0.98, 0.95, 0.97], GOOD, rule()).verdict == "inconclusive"


def test_bounds_are_those_of_welch_by_hand():
    a, b = [1.0, 2.0, 4.0], [1.5, 1.0, 2.5, 3.0]
    va, vb = np.var(a, ddof=1) / 3, np.var(b, ddof=1) / 4
    freedom = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 3)
    reach = stats.t.ppf(1 - 0.025, freedom) * math.sqrt(va + vb)
    outcome = compare(a, b, rule(margin=10.0))
    assert outcome.difference == pytest.approx(np.mean(a) - np.mean(b))
    assert outcome.lower == pytest.approx(outcome.difference - reach)
    assert outcome.upper == pytest.approx(outcome.difference + reach)


def test_bounds_are_those_of_paired_t_by_hand():
    a, b = [1.0, 2.0, 4.0, 3.0], [0.9, 2.2, 3.7, 3.1]
    d = np.subtract(a, b)
    reach = stats.t.ppf(1 - 0.025, 3) * d.std(ddof=1) / 2
    outcome = compare(a, b, rule(paired=True))
    assert outcome.lower == pytest.approx(d.mean() - reach)


def test_pairing_removes_what_the_seeds_share():
    reference = [0.90, 0.95, 0.99, 0.92, 0.97]
    candidate = [v + e for v, e in zip(reference, (0.001, -0.001, 0.0, 0.001, -0.001), strict=True)]
    assert compare(candidate, reference, rule(paired=True)).verdict == "accept"
    assert compare(candidate, reference, rule(paired=False)).verdict == "inconclusive"


def test_smaller_is_better_turns_the_difference_round():
    worse = compare([1.2, 1.21, 1.19], [1.0, 1.01, 0.99], rule(mode="min", margin=0.05))
    assert worse.difference == pytest.approx(-0.2)
    assert worse.verdict == "reject"


@pytest.mark.parametrize(("mode", "factor"), [("max", 0.97), ("min", 1.03)])
def test_relative_margin_scales_with_the_reference(mode, factor):
    reference = [100.0, 101.0, 99.0, 100.5, 99.5]
    candidate = [factor * v for v in reference]
    accepted = compare(candidate, reference, rule(mode=mode, margin=0.05, relative=True, paired=True))
    rejected = compare(candidate, reference, rule(mode=mode, margin=0.01, relative=True, paired=True))
    assert (accepted.verdict, rejected.verdict) == ("accept", "reject")
    assert accepted.margin == pytest.approx(5.0)


def test_relative_margin_refuses_a_metric_that_is_not_positive():
    with pytest.raises(ConfigError, match="positive"):
        compare([1.0, 2.0], [0.0, 1.0], rule(relative=True))


def test_no_variance_at_all_is_decided_by_the_means_and_said():
    same = compare([0.9] * 5, [0.9] * 5, rule())
    assert (same.verdict, same.degenerate, same.lower) == ("accept", True, 0.0)
    assert compare([0.8] * 5, [0.9] * 5, rule()).verdict == "reject"


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"margin": -0.1}, "margin"), ({"alpha": 0.0}, "alpha"), ({"alpha": 0.6}, "alpha"), ({"looks": (1, 2)}, "looks")],
)
def test_rule_refuses_what_makes_no_sense(changes, word):
    with pytest.raises(ConfigError, match=word):
        rule(**changes)


def test_single_seeds_are_refused():
    with pytest.raises(ConfigError, match="two seeds"):
        compare([0.9], [0.9], rule())


@pytest.mark.parametrize("paired", [False, True])
def test_false_acceptance_over_two_looks_stays_at_alpha(paired):
    """True difference exactly -margin: accepted by either look in at most 5 % (3 standard errors allowed)."""
    generator, repetitions, accepted = np.random.default_rng(7), 2000, 0
    criterion = rule(paired=paired)
    for _ in range(repetitions):
        reference = generator.normal(0.97, 0.005, 10)
        candidate = generator.normal(0.96, 0.005, 10)
        for look in criterion.looks:
            verdict = compare(candidate[:look], reference[:look], criterion).verdict
            if verdict != "inconclusive":
                break
        accepted += verdict == "accept"
    assert accepted / repetitions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repetitions)
    assert accepted > 0


@pytest.mark.parametrize(("seeds", "expected"), [(5, 1.74), (10, 1.16)])
def test_power_is_that_of_the_method(seeds, expected):
    assert smallest_detectable_margin(seeds, level=0.05) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("paired", [False, True])
def test_a_tie_at_the_margin_is_never_accepted_whatever_the_rounding(paired):
    """Every seed loses one of 100 images, and one is the margin: in floating point a little more or a little less."""
    generator = np.random.default_rng(0)
    for _ in range(300):
        reference = generator.integers(80, 100, 5) / 100
        if not paired:
            reference = np.full(5, reference[0])
        candidate = np.round(reference - 0.01, 2)
        for kind in (np.float64, np.float32):
            outcome = compare(candidate.astype(kind), reference.astype(kind), rule(paired=paired))
            assert (outcome.verdict, outcome.degenerate) == ("inconclusive", True)


def test_a_tie_of_a_relative_margin_is_not_accepted():
    generator = np.random.default_rng(0)
    for mode, factor in (("max", 0.9), ("min", 1.1)):
        for _ in range(300):
            reference = generator.uniform(1.0, 100.0, 5)
            tied = compare(factor * reference, reference, rule(mode=mode, margin=0.1, relative=True, paired=True))
            assert tied.verdict == "inconclusive"


def test_a_difference_that_is_small_and_no_rounding_decides():
    reference = np.array([0.9, 0.91, 0.92, 0.93, 0.94])
    for gain, verdict in ((1e-6, "accept"), (-1e-6, "reject")):
        assert compare(reference - 0.01 + gain, reference, rule(paired=True)).verdict == verdict
