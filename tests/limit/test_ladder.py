"""The climb of one optimizer, outcome by outcome."""

import pytest

from vrgd_ray.limit.ladder import Ladder


def climb(outcomes, rungs_beyond=1):
    """Observe the outcomes of 1, 2, 4, ... until the ladder proposes nothing."""
    ladder = Ladder(sorted(outcomes), rungs_beyond)
    while (rung := ladder.propose()) is not None:
        ladder.observe(rung, outcomes[rung])
    return ladder


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
