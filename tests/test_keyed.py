"""Draws that depend on their keys alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vrgd_ray import keyed_uniform
from vrgd_ray.keyed import combine, mix, sample_keys

words = st.integers(0, 2**64 - 1)


def test_the_finalizer_is_splitmix64():
    """The first outputs of splitmix64 from state 0, and of state 1234567, as published with its reference code."""
    golden = 0x9E3779B97F4A7C15
    assert [mix(0), mix(golden)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert mix(1234567) == 6457827717110365317


@given(words, words)
def test_keys_depend_on_order_and_on_every_part(first, second):
    assert combine(first, second) == combine(first, second)
    if first != second:
        assert combine(first, second) != combine(second, first)
    assert combine(first) != combine(first, 0)


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000), st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_a_sample_has_its_key_whatever_its_company(seed, epoch, samples):
    keys = sample_keys(seed, epoch, np.array(samples))
    assert keys.dtype == np.uint64
    alone = [sample_keys(seed, epoch, np.array([sample]))[0] for sample in samples]
    assert keys.tolist() == alone
    assert keys.tolist() == [mix(combine(seed, epoch) ^ sample) for sample in samples]


def test_uniform_numbers_are_a_function_of_the_key_and_uniform():
    keys = sample_keys(0, 0, np.arange(50_000))
    numbers = keyed_uniform(keys, 3)
    assert numbers.shape == (50_000, 3)
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    np.testing.assert_array_equal(keyed_uniform(keys[::-1], 3), numbers[::-1])
    np.testing.assert_array_equal(keyed_uniform(keys, 2), numbers[:, :2])
    np.testing.assert_allclose(numbers.mean(0), 0.5, atol=0.005)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.02
