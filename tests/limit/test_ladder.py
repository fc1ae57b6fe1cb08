"""The climb of one optimizer, outcome by outcome."""

import math

import pytest

from vrgd_ray.limit.bisection import Bisection
from vrgd_ray.limit.ladder import Ladder, predicted_start

RUNGS = (32, 64, 128, 256, 512)


def climb(outcomes, rungs_beyond=1):
    """Observe the outcomes of 1, 2, 4, ... until the ladder proposes nothing."""
    return follow(Ladder(sorted(outcomes), rungs_beyond), outcomes.__getitem__)


def follow(ladder, accepts):
    while (rung := ladder.propose()) is not None:
        ladder.observe(rung, accepts(rung))
    return ladder


def up_to(limit):
    return lambda batch_size: batch_size <= limit


def test_climbs_to_the_top_while_accepted():
    ladder = climb({32: True, 64: True, 128: True})
    assert ladder.largest == 128
    assert [ladder.claim(b) for b in (32, 64, 128)] == ["confirmed"] * 3


def test_stops_one_rung_beyond_the_first_failure():
    ladder = climb({32: True, 64: False, 128: False, 256: True})
    assert ladder.largest == 32
    assert [ladder.claim(b) for b in (64, 128, 256)] == ["exploratory", "exploratory", "not tested"]


def test_acceptance_beyond_a_failure_is_never_the_claim():
    ladder = climb({32: True, 64: False, 128: True, 256: True})
    assert ladder.largest == 32
    assert ladder.claim(128) == "exploratory"


def test_nothing_accepted():
    assert climb({32: False, 64: False}).largest is None


def test_starts_at_the_smallest_whatever_the_order_given():
    assert Ladder([128, 32, 64]).propose() == 32


def test_refuses_an_outcome_nobody_asked_for():
    with pytest.raises(ValueError, match="rung 64"):
        Ladder([32, 64]).observe(64, True)


def test_empty_ladder_is_over_at_once():
    assert Ladder([]).propose() is None


def test_from_a_start_it_climbs_and_leaves_the_rungs_below_alone():
    ladder = follow(Ladder(RUNGS, start=128), up_to(256))
    assert list(ladder.accepted) == [128, 256, 512]
    assert ladder.largest == 256
    assert ladder.claim(64) == "not tested"


def test_a_start_that_fails_goes_down_until_one_is_accepted_and_then_looks_beyond():
    ladder = follow(Ladder(RUNGS, start=256), up_to(64))
    assert list(ladder.accepted) == [256, 128, 64, 512]
    assert ladder.largest == 64
    assert ladder.claim(64) == "confirmed"
    assert ladder.claim(512) == "exploratory"


def test_a_failure_above_an_accepted_start_does_not_go_down():
    assert list(follow(Ladder(RUNGS, start=128), up_to(128)).accepted) == [128, 256, 512]


def test_going_down_may_end_with_nothing():
    ladder = follow(Ladder(RUNGS, start=128), up_to(0))
    assert list(ladder.accepted) == [128, 64, 32, 256]
    assert ladder.largest is None


def test_from_the_bottom_the_climb_has_the_whole_level():
    assert {Ladder(RUNGS).share(b) for b in RUNGS} == {1.0}


def test_from_a_start_half_the_level_climbs_and_half_is_shared_among_the_rungs_below():
    ladder = Ladder(RUNGS, start=256)
    assert [ladder.share(b) for b in RUNGS] == [pytest.approx(1 / 6)] * 3 + [0.5, 0.5]


@pytest.mark.parametrize("start", [None, 128])
def test_bisection_has_a_quarter_of_the_level_for_all_its_tests(start):
    ladder = Ladder(RUNGS, start=start, bisection=Bisection(resolution=1.25, unit=8))
    assert ladder.share(40) == ladder.share(360) == 0.25 / 2
    below = sum(ladder.share(b) for b in ladder.downward)
    assert ladder.share(ladder.upward[0]) + below + 2 * ladder.share(360) == pytest.approx(1.0)


def test_the_bracket_is_bisected_to_the_resolution_with_the_largest_accepted_as_the_claim():
    ladder = follow(Ladder(RUNGS, bisection=Bisection(resolution=1.25, unit=8)), up_to(220))
    assert list(ladder.accepted) == [32, 64, 128, 256, 184, 216, 512]
    assert ladder.largest == 216
    assert ladder.claim(216) == "confirmed"


def test_the_bracket_after_the_way_down_is_bisected_too():
    ladder = follow(Ladder(RUNGS, start=256, bisection=Bisection(resolution=1.5, unit=8)), up_to(100))
    assert list(ladder.accepted) == [256, 128, 64, 88, 512]
    assert ladder.largest == 88


def test_the_reference_below_the_first_rung_is_the_end_of_a_bracket():
    refined = Bisection(resolution=1.25, unit=8)
    assert follow(Ladder((64, 128), floor=32, bisection=refined), up_to(50)).largest == 48
    assert follow(Ladder((64, 128), bisection=refined), up_to(50)).largest is None


def test_a_ladder_accepted_to_its_top_leaves_nothing_to_bisect():
    assert follow(Ladder(RUNGS, bisection=Bisection(resolution=1.1)), up_to(512)).largest == 512


@pytest.mark.parametrize(
    ("noise_scale", "start"),
    [
        (None, None),
        (0.0, None),
        (-1e-16, None),
        (5e-324, None),
        (math.inf, None),
        (10.0, None),
        (90.0, None),
        (91.0, 128),
        (181.0, 128),
        (182.0, 256),
        (1e9, 512),
    ],
)
def test_the_start_is_the_rung_nearest_to_the_noise_scale_if_two_lie_below(noise_scale, start):
    assert predicted_start(RUNGS, noise_scale) == start


def test_what_may_still_come_from_a_start():
    ladder = Ladder(RUNGS, start=128)
    assert [ladder.may_come(b) for b in RUNGS] == [False, False, True, True, True]
    ladder.observe(128, False)
    assert [ladder.may_come(b) for b in (32, 64, 128)] == [True, True, False]
