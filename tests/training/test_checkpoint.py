"""State on disk: whole or not at all, and read without running code."""

import pickle

import pytest
import torch

from vrgd_ray.training.checkpoint import STATE_FILE, load_state, save_state


def test_plain_data_and_tensors_come_back(tmp_path):
    save_state(tmp_path, {"step": 3, "model": {"weight": torch.arange(3.0)}, "curve": [{"accuracy": 0.5}]})
    state = load_state(tmp_path)
    assert (state["step"], state["curve"]) == (3, [{"accuracy": 0.5}])
    assert torch.equal(state["model"]["weight"], torch.arange(3.0))


def test_a_write_that_fails_leaves_the_state_before_it(tmp_path):
    save_state(tmp_path, {"step": 1})
    with pytest.raises(Exception, match="pickle"):
        save_state(tmp_path, {"step": lambda: 2})
    assert load_state(tmp_path) == {"step": 1}


def test_nothing_but_the_state_is_left_behind(tmp_path):
    save_state(tmp_path, {"step": 1})
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_code_in_a_state_is_refused(tmp_path):
    save_state(tmp_path, {"step": test_code_in_a_state_is_refused})
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        load_state(tmp_path)
