"""Every group of a batch is computed by exactly one worker, whatever their number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray import ConfigError
from vrgd_ray.training.batch_plan import BatchPlan


def plans(num_groups, world_size, group_size=3):
    return [
        BatchPlan(batch_size=num_groups * group_size, num_groups=num_groups, world_size=world_size, rank=rank)
        for rank in range(world_size)
    ]


def test_the_first_workers_take_what_is_left_over():
    assert [list(plan.groups) for plan in plans(8, 3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@given(st.integers(2, 40), st.data())
def test_workers_partition_the_groups_in_order_and_evenly(num_groups, data):
    world_size = data.draw(st.integers(1, num_groups))
    shares = [list(plan.groups) for plan in plans(num_groups, world_size)]
    assert [group for share in shares for group in share] == list(range(num_groups))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert min(map(len, shares)) >= 1


@given(st.integers(2, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
def test_a_step_covers_its_stretch_of_the_stream_once(num_groups, group_size, workers, step):
    everyone = plans(num_groups, min(workers, num_groups), group_size)
    starts = [plan.position(step, group) for plan in everyone for group in plan.groups]
    positions = [start + offset for start in starts for offset in range(group_size)]
    batch = num_groups * group_size
    assert positions == list(range(step * batch, (step + 1) * batch))


@given(st.integers(1, 60), st.integers(1, 70))
def test_the_passes_of_a_group_cover_it_in_order_and_evenly(group_size, limit):
    plan = BatchPlan(batch_size=2 * group_size, num_groups=2, max_samples_per_pass=limit)
    samples = [chunk.first + offset for chunk in plan.chunks for offset in range(chunk.size)]
    assert samples == list(range(group_size))
    sizes = [chunk.size for chunk in plan.chunks]
    assert max(sizes) <= limit
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-group_size // limit)


def test_without_a_limit_a_group_is_one_pass():
    assert plans(8, 1, group_size=5)[0].chunks == [(0, 5)]


def test_a_pass_without_a_sample_is_refused():
    with pytest.raises(ConfigError, match="max_samples_per_pass = 0 must be at least 1"):
        BatchPlan(batch_size=64, num_groups=8, max_samples_per_pass=0)


def test_group_size():
    assert plans(8, 1, group_size=5)[0].group_size == 5


def test_more_workers_than_groups_are_refused_with_what_would_do():
    with pytest.raises(
        ConfigError, match=r"9 workers cannot share num_groups = 8 .* at most 8 workers or num_groups >= 9"
    ):
        BatchPlan(batch_size=64, num_groups=8, world_size=9)


def test_a_batch_the_groups_do_not_divide_is_refused():
    with pytest.raises(ConfigError, match="batch_size = 60 is not a multiple of num_groups = 8"):
        BatchPlan(batch_size=60, num_groups=8)
