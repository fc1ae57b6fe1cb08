"""Checkpoints written while training goes on."""

import resource
import threading

import torch

from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.checkpoint_writer import CheckpointWriter
from vrgd_ray.training.snapshot import Snapshot


class Held(CheckpointStore):
    """Writes only once the gate is open."""

    def __init__(self, location):
        super().__init__(location)
        self.gate = threading.Event()

    def save(self, step, state):
        assert self.gate.wait(30)
        super().save(step, state)


def test_the_state_is_that_of_the_moment_whatever_training_does_meanwhile(tmp_path):
    store = Held(str(tmp_path))
    writer = CheckpointWriter(store, print)
    weight = torch.ones(5)
    writer.write(1, {"step": 1, "nested": [{"weight": weight}]})
    assert writer.busy
    weight.zero_()
    store.gate.set()
    writer.finish()
    assert not writer.busy
    assert store.load(1)["nested"][0]["weight"].tolist() == [1.0] * 5


def test_the_next_state_waits_for_the_one_before(tmp_path):
    store = Held(str(tmp_path))
    writer = CheckpointWriter(store, print)
    store.gate.set()
    for step in (1, 2, 3):
        writer.write(step, {"step": step, "weight": torch.full((3,), float(step))})
    writer.finish()
    assert [store.load(step)["weight"][0].item() for step in store.steps()] == [3.0, 2.0]


def test_a_full_disk_is_said_and_the_next_state_tried(tmp_path):
    said = []
    store = CheckpointStore(str(tmp_path))
    writer = CheckpointWriter(store, said.append)
    writer.write(1, {"step": 1})
    writer.finish()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        writer.write(2, {"step": 2, "weight": torch.zeros(100_000)})
        writer.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(said) == 1
    assert "step 2 could not be written" in said[0]
    assert "File too large" in said[0]
    assert store.steps() == [1]
    writer.write(3, {"step": 3})
    writer.finish()
    assert (store.steps(), len(said)) == ([3, 1], 1)


def test_a_state_that_could_never_be_read_is_known_at_the_first_write(tmp_path):
    said = []
    writer = CheckpointWriter(CheckpointStore(str(tmp_path)), said.append)
    for step in (1, 2):
        writer.write(step, {"step": step, "odd": print})
        writer.finish()
    assert "step 1 cannot be read back: Weights only load failed" in said[0]


def test_a_state_that_cannot_be_written_is_said(tmp_path):
    said = []
    writer = CheckpointWriter(CheckpointStore(str(tmp_path)), said.append)
    writer.write(1, {"step": lambda: 1})
    writer.finish()
    assert "step 1 could not be written" in said[0]
    assert writer.written is None


def test_a_snapshot_uses_its_memory_again():
    snapshot = Snapshot()
    state = {"a": torch.arange(4.0), "b": [torch.ones(2), 7, "text"], "c": (None, torch.zeros(1, dtype=torch.int64))}
    first = snapshot.take(state)
    assert first["b"][1:] == [7, "text"]
    assert first["c"][0] is None
    state["a"] += 1
    second = snapshot.take(state)
    assert second["a"].data_ptr() == first["a"].data_ptr() != state["a"].data_ptr()
    assert second["a"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_snapshot_follows_a_state_that_changes_shape():
    snapshot = Snapshot()
    snapshot.take({"a": torch.ones(2)})
    assert snapshot.take({"a": torch.ones(3)})["a"].shape == (3,)
