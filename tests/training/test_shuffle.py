"""The permutation that is computed instead of stored: each number once, any stretch alone, and no visible pattern."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray.training.shuffle import shuffled


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_number_appears_once(size, seed):
    assert sorted(shuffled(0, size, size, seed)) == list(range(size))


@given(st.integers(1, 2**60), st.integers(0, 2**63), st.data())
def test_any_stretch_is_part_of_the_same_permutation(size, seed, data):
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start, min(size, start + 50)))
    stretch = shuffled(start, stop, size, seed)
    assert [int(shuffled(place, place + 1, size, seed)[0]) for place in range(start, stop)] == stretch.tolist()
    assert len(set(stretch.tolist())) == stop - start
    assert all(0 <= number < size for number in stretch)


@pytest.mark.parametrize("size", [100_003, 10**9 + 7])
def test_numbers_are_spread_evenly_wherever_one_reads(size):
    """Chi-square of the numbers in 100 bins over stretches of 50,000: its mean over seeds is that of chance."""
    scores = []
    for seed in range(20):
        counts = np.histogram(shuffled(1000, 51_000, size, seed), bins=100, range=(0, size))[0]
        scores.append(((counts - 500) ** 2 / 500).sum())
    # Without replacement from 100,003 numbers the counts vary by half as much.
    expected = 99 * (1 - 50_000 / size)
    assert np.mean(scores) == pytest.approx(expected, abs=4 * expected * np.sqrt(2 / 99 / 20))


def test_neighbouring_places_and_seeds_are_unrelated():
    drawn = np.stack([shuffled(0, 20_000, 10**7, seed) for seed in range(2)]) / 10**7 - 0.5
    lagged = [np.mean(drawn[0, lag:] * drawn[0, : -lag or None]) * 12 for lag in (1, 2, 3, 1000)]
    assert np.abs([*lagged, np.mean(drawn[0] * drawn[1]) * 12]).max() < 4 / np.sqrt(19_000)


def test_the_order_never_changes_between_versions():
    assert shuffled(0, 6, 10**6, 1).tolist() == [710273, 879741, 174641, 662150, 228983, 65153]
