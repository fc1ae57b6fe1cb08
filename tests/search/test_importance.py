"""Importances find the field that decides, and say nothing where nothing can be known."""

import random

import pytest

from vrgd_ray.search.importance import FEWEST_TRIALS, importances, ranks


def trials(count, score):
    generator = random.Random(0)
    drawn = [
        {
            "lr": 10 ** generator.uniform(-4, -1),
            "weight_decay": generator.uniform(0, 0.1),
            "schedule": generator.choice(["cosine", "linear"]),
            "gsnr_upper": 1.0,
        }
        for _ in range(count)
    ]
    return [(values, score(values)) for values in drawn]


@pytest.mark.parametrize(
    ("decisive", "score"),
    [("weight_decay", lambda v: v["weight_decay"]), ("schedule", lambda v: float(v["schedule"] == "linear"))],
)
def test_the_field_that_decides_the_score_has_the_largest_share(decisive, score):
    shares = importances(trials(40, score))
    assert next(iter(shares)) == decisive
    assert shares[decisive] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert "gsnr_upper" not in shares  # it never varied


def test_the_same_trials_give_the_same_shares():
    known = trials(20, lambda v: v["lr"])
    assert importances(known) == importances(known)


def test_too_few_trials_equal_scores_or_fixed_fields_give_nothing():
    assert importances([]) == {}
    assert importances(trials(FEWEST_TRIALS - 1, lambda v: v["lr"])) == {}
    assert importances(trials(20, lambda v: 1.0)) == {}
    assert importances([({"lr": 0.1}, float(i)) for i in range(20)]) == {}


def test_a_field_that_not_every_trial_has_is_left_out():
    known = trials(20, lambda v: v["lr"])
    known[0] = ({k: v for k, v in known[0][0].items() if k != "schedule"}, 0.5)
    assert "schedule" not in importances(known)


def test_ranks_follow_the_mode_share_ties_and_put_diverged_trials_last():
    assert ranks([0.1, 0.3, None, 0.2], "max") == pytest.approx([1 / 3, 1, 0, 2 / 3])
    assert ranks([0.1, 0.3, None, 0.2], "min") == pytest.approx([1, 1 / 3, 0, 2 / 3])
    assert ranks([0.5, 0.5, 0.7], "max") == pytest.approx([0.25, 0.25, 1])
    assert ranks([0.5], "max") == [0]


def test_trials_stopped_early_rank_between_complete_and_diverged_ones_by_how_far_they_came():
    metrics, pruned = [0.9, None, None, None, None, 0.1], {1: (200, 0.95), 2: (800, 0.5), 3: (200, 0.4)}
    assert ranks(metrics, "max", pruned) == pytest.approx([1, 0.4, 0.6, 0.2, 0, 0.8])
    assert ranks(metrics, "min", pruned) == pytest.approx([0.8, 0.2, 0.6, 0.4, 0, 1])
