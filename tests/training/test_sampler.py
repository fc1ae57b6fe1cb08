"""The order of samples is a function of seed and position: permutations end to end, however they are read."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray.training.sampler import SampleStream

sizes = st.integers(1, 50)
seeds = st.integers(0, 2**63 - 1)


@given(sizes, seeds, st.integers(0, 10**6))
def test_every_epoch_is_a_permutation(num_samples, seed, epoch):
    drawn = SampleStream(num_samples, seed).indices(epoch * num_samples, (epoch + 1) * num_samples)
    assert sorted(drawn) == list(range(num_samples))


@given(sizes, seeds, st.lists(st.integers(1, 70), min_size=1, max_size=8))
def test_any_partition_into_reads_gives_the_same_stream(num_samples, seed, lengths):
    ends = np.cumsum([0, *lengths])
    whole = SampleStream(num_samples, seed).indices(0, ends[-1])
    stream = SampleStream(num_samples, seed)
    pieces = [stream.indices(start, stop) for start, stop in itertools.pairwise(ends)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@given(sizes, seeds, st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), min_size=1, max_size=6))
def test_reads_in_any_order_agree_with_the_stream(num_samples, seed, reads):
    stream = SampleStream(num_samples, seed)
    whole = SampleStream(num_samples, seed).indices(0, 400)
    for start, length in reads:
        np.testing.assert_array_equal(stream.indices(start, start + length), whole[start : start + length])


def test_a_batch_straddles_two_epochs():
    stream = SampleStream(10, seed=3)
    np.testing.assert_array_equal(stream.indices(8, 13), [*stream.indices(8, 10), *stream.indices(10, 13)])
    assert sorted([*stream.indices(0, 8), *stream.indices(8, 13)[:2]]) == list(range(10))


def test_a_batch_may_span_several_epochs():
    np.testing.assert_array_equal(np.bincount(SampleStream(4, seed=0).indices(4, 16)), [3, 3, 3, 3])


def test_seeds_and_epochs_have_orders_of_their_own():
    first, second = SampleStream(100, seed=0), SampleStream(100, seed=1)
    assert list(first.indices(0, 100)) != list(second.indices(0, 100))
    assert list(first.indices(0, 100)) != list(first.indices(100, 200))


def test_the_order_never_changes_between_versions():
    assert SampleStream(8, seed=0).indices(0, 16).tolist() == [2, 4, 3, 6, 5, 0, 1, 7, 1, 3, 7, 6, 0, 4, 2, 5]
