"""The order of samples is a function of seed and position: permutations end to end, however they are read."""

import itertools
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray.keyed import sample_keys
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


LARGE = 3 * 2**18 + 5  # drawn in blocks


def test_an_epoch_drawn_in_blocks_is_a_permutation_too():
    drawn = SampleStream(LARGE, seed=1).indices(LARGE, 2 * LARGE)
    assert np.array_equal(np.sort(drawn), np.arange(LARGE))


@given(st.integers(0, 3 * LARGE), st.integers(1, 100))
def test_reads_across_blocks_and_epochs_agree_with_single_reads(start, length):
    stream = SampleStream(LARGE, seed=1)
    edge = start // 2**18 * 2**18
    start = max(edge - length // 2, 0)
    pieces = [stream.indices(place, place + 1) for place in range(start, start + length)]
    np.testing.assert_array_equal(stream.indices(start, start + length), np.concatenate(pieces))


def test_memory_does_not_grow_with_the_data():
    stream = SampleStream(10**12, seed=0)
    tracemalloc.start()
    for start in range(0, 10**12, 10**11):
        stream.indices(start, start + 10_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20


@given(sizes, seeds, st.integers(0, 200), st.integers(1, 60))
def test_keys_are_those_of_seed_epoch_and_sample(num_samples, seed, start, length):
    stream = SampleStream(num_samples, seed)
    indices = stream.indices(start, start + length)
    keys = stream.keys(start, indices)
    expected = [
        sample_keys(seed, (start + place) // num_samples, np.array([sample]))[0] for place, sample in enumerate(indices)
    ]
    assert keys.tolist() == expected
