"""States in a store: whole or not at all, the newest few, and read without running code."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vrgd_ray import ConfigError
from vrgd_ray.training.checkpoint import CheckpointStore

KILLED_IN_A_WRITE = """
import sys, torch
from vrgd_ray.training.checkpoint import CheckpointStore
store = CheckpointStore(sys.argv[1])
store.save(1, {"step": 1})
state = {f"tensor {i}": torch.zeros(2**20) for i in range(100)}
for step in range(2, 1000):
    store.save(step, {**state, "step": step})
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero_a_page(path):
    content = bytearray(path.read_bytes())
    content[1500:2500] = bytes(1000)
    path.write_bytes(content)


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(str(tmp_path / "store"))


def test_plain_data_and_tensors_come_back(store):
    store.save(3, {"step": 3, "model": {"weight": torch.arange(3.0)}, "curve": [{"accuracy": 0.5}]})
    state = store.load(3)
    assert (state["step"], state["curve"]) == (3, [{"accuracy": 0.5}])
    assert torch.equal(state["model"]["weight"], torch.arange(3.0))


def test_an_empty_store_has_no_newest_state(store):
    assert store.steps() == []
    assert store.newest(print) is None


def test_the_newest_few_are_kept(tmp_path):
    store = CheckpointStore(str(tmp_path), keep=3)
    for step in (5, 10, 15, 20, 100):
        store.save(step, {"step": step})
    assert store.steps() == [100, 20, 15]
    assert store.newest(print) == (100, {"step": 100})


def test_a_write_that_fails_leaves_the_state_before_it_and_nothing_else(store, tmp_path):
    store.save(1, {"step": 1})
    with pytest.raises(Exception, match="pickle"):
        store.save(2, {"step": lambda: 2})
    assert names(tmp_path / "store") == ["step_000000001.pt"]


@pytest.mark.parametrize(
    "damage", [truncate, zero_a_page, lambda path: path.write_bytes(b""), lambda path: path.write_text("x")]
)
def test_a_damaged_state_is_said_and_the_one_before_it_used(store, tmp_path, damage):
    for step in (1, 2):
        store.save(step, {"step": step, "weight": torch.ones(1000)})
    damage(tmp_path / "store/step_000000002.pt")
    said = []
    step, state = store.newest(said.append)
    assert (step, state["step"]) == (1, 1)
    assert len(said) == 1
    assert "step_000000002.pt cannot be read" in said[0]
    assert store.steps() == [1]  # set aside, so that the next ones are kept
    for step in range(2, 5):
        store.save(step, {"step": step})
    assert store.steps() == [4, 3]


def test_no_damage_passes_for_another_state(store, tmp_path):
    store.save(1, {"step": 1, "weight": torch.ones(100)})
    path = tmp_path / "store/step_000000001.pt"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            state = store.load(1)
        except OSError:
            pytest.fail("damage must not be taken for a storage that does not answer")
        except Exception:
            continue
        assert state["step"] == 1
        assert torch.equal(state["weight"], torch.ones(100))


def test_checkpoints_that_none_can_be_read_of_are_no_fresh_start(store, tmp_path):
    for step in (1, 2):
        store.save(step, {"step": step})
        truncate(tmp_path / f"store/step_00000000{step}.pt")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"not one of the 2 checkpoints in .* can be read; delete them"):
            store.newest(print)


def test_a_storage_that_does_not_answer_is_not_taken_for_damage(store, monkeypatch):
    store.save(1, {"step": 1})

    def gone(step):
        raise OSError("the network is down")

    monkeypatch.setattr(store, "load", gone)
    with pytest.raises(OSError, match="network"):
        store.newest(print)
    assert store.steps() == [1]


def test_a_place_that_takes_no_folder_is_refused():
    with pytest.raises(ConfigError, match="the storage /proc/x cannot be used"):
        CheckpointStore("/proc/x").prepare()


def test_code_in_a_state_is_refused(store):
    store.save(1, {"step": test_code_in_a_state_is_refused})
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        store.load(1)


def test_a_kill_in_the_middle_of_a_write_leaves_whole_states_only(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED_IN_A_WRITE, str(tmp_path)])
    deadline = time.monotonic() + 60
    while not any(partial.name > "step_000000002" for partial in tmp_path.glob("*.partial")):
        assert time.monotonic() < deadline
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    store = CheckpointStore(str(tmp_path))
    step, state = store.newest(pytest.fail)
    assert state["step"] == step == max(store.steps())
    store.save(10_000, {"step": 10_000})
    assert not any(tmp_path.glob("*.partial"))


def test_a_file_system_that_is_no_disk_takes_states_too():
    store = CheckpointStore("mock:///bucket/run")
    for step in (1, 2, 3):
        store.save(step, {"step": step})
    assert store.steps() == [3, 2]
    assert store.newest(print) == (3, {"step": 3})


def test_a_place_that_pyarrow_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="the storage ftp://somewhere cannot be used"):
        CheckpointStore("ftp://somewhere")


def test_a_relative_folder_is_taken_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CheckpointStore("here").save(1, {"step": 1})
    assert Path("here/step_000000001.pt").exists()
