"""Rows held out of a table and the rest."""

import numpy as np
import pytest

from pipelines._rows import Rows, train_and_validation
from vrgd_ray import ConfigError


@pytest.mark.parametrize("size", [2, 10, 997, 12_345])
def test_both_parts_together_are_the_table(size):
    train, validation = train_and_validation(size, None)
    both = [*train[np.arange(len(train))], *validation[np.arange(len(validation))]]
    assert sorted(both) == list(range(size))
    assert len(validation) == max(1, size // 10)


def test_a_table_of_one_row_cannot_be_split():
    with pytest.raises(ConfigError, match=r"the training table has one row.*it needs at least two"):
        train_and_validation(1, None)


def test_rows_are_asked_for_in_any_order():
    rows = Rows(10, np.array([0, 1, 5, 9]))
    np.testing.assert_array_equal(rows[np.array([5, 0, 3, 3, 1, 2, 4])], [8, 2, 6, 6, 3, 4, 7])


def test_a_billion_rows_cost_what_is_held_out():
    train, validation = train_and_validation(10**9, 1000)
    assert (len(train), len(validation)) == (1000, 1000)
    whole, held_out = train_and_validation(10**9, None)
    assert len(whole) == 10**9 - len(held_out) == 10**9 - 50_000
    some = whole[np.random.default_rng(0).integers(0, len(whole), 100_000)]
    assert not np.isin(some, held_out[np.arange(50_000)]).any()
