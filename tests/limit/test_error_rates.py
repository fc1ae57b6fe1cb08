"""How often a search claims too much, in simulated searches through the real ladder, contests and criterion."""

import math
from dataclasses import replace

import numpy as np
import pytest
from simulation import Seeds

from vrgd_ray.limit.bisection import Bisection
from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.ladder import Ladder

RUNGS = tuple(32 * 2**i for i in range(10))
REFINED = Bisection(resolution=1.25, unit=8)
ALPHA, MARGIN, SPREAD = 0.05, 0.01, 0.006
SEARCHES = 3000
SLACK = 3 * math.sqrt(ALPHA * (1 - ALPHA) / SEARCHES)


def claim(generator, ladder, loss, rule):
    """The claim of one search; every cell shares the reference's seeds, as in the finder."""
    reference = Seeds(generator.normal(0.0, SPREAD, rule.looks[-1]))
    while (batch_size := ladder.propose()) is not None:
        values = generator.normal(-loss(batch_size), SPREAD, rule.looks[-1])
        contest = Contest(Seeds(values), replace(rule, alpha=rule.alpha * ladder.share(batch_size)))
        contest.judge(reference)
        ladder.observe(batch_size, contest.verdict == "accept")
    return ladder.largest


def wrong_claims(limit, *, paired=False, **options):
    """Share of searches that claim more than `limit`, where every larger batch loses exactly the margin."""
    generator = np.random.default_rng(5)
    rule = Criterion(margin=MARGIN, mode="max", alpha=ALPHA, paired=paired)

    def loss(batch_size):
        return MARGIN if batch_size > limit else 0.0

    claims = [claim(generator, Ladder(RUNGS, **options), loss, rule) for _ in range(SEARCHES)]
    return sum(found is not None and found > limit for found in claims) / SEARCHES


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"start": 512}, {"bisection": REFINED, "floor": 16}, {"start": 512, "bisection": REFINED, "floor": 16}],
    ids=["from the bottom", "from the middle", "refined", "from the middle, refined"],
)
def test_where_every_rung_loses_the_margin_a_search_claims_one_in_at_most_alpha(options, paired):
    rate = wrong_claims(0, paired=paired, **options)
    assert 0 < rate <= ALPHA + SLACK


def test_with_a_limit_below_the_start_a_search_claims_more_in_at_most_alpha():
    assert wrong_claims(512, start=2048, bisection=REFINED) <= ALPHA + SLACK


def test_a_limit_between_two_rungs_is_overclaimed_in_at_most_alpha():
    assert wrong_claims(600, bisection=REFINED) <= ALPHA + SLACK


def test_without_its_share_of_the_level_the_way_down_would_claim_too_much():
    """The simulation can tell: the same walk with every test at the whole level exceeds alpha by far."""

    class Greedy(Ladder):
        def share(self, batch_size):
            return 1.0

    generator = np.random.default_rng(5)
    rule = Criterion(margin=MARGIN, mode="max", alpha=ALPHA)
    claims = [claim(generator, Greedy(RUNGS, start=8192), lambda b: MARGIN, rule) for _ in range(1000)]
    assert sum(found is not None for found in claims) / 1000 > 2 * ALPHA
