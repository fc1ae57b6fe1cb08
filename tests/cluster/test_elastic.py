"""A run that gains a worker, or loses one to SIGKILL, ends with the parameters of the undisturbed run."""

import os
import signal
import time
from pathlib import Path

import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from workloads import Gated, SlowAlone

from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.training.checkpoint import load_state
from vrgd_ray.training.connection import connect
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.worker import WorkerGroup, train_on_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
RECIPE = Gated.reference.with_values(optimizer="vr_adamw", epochs=30)
TESTS = Path(__file__).parent.parent


@pytest.fixture
def cluster():
    """A cluster of one node with one CPU, to which nodes can be added."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    with connect(made.address):
        yield made
    made.shutdown()


def start_training(folder, name, arguments, num_workers):
    """Begin the run in a task, because nodes can only be added from the main thread."""
    source = PipelineSource(name=f"workloads:{name}", arguments=arguments, search_path=str(TESTS))
    group = WorkerGroup(
        num_workers=num_workers, storage=str(folder / "ray"), name="run", checkpoint_every=0.5, resize_every=3.0
    )

    @ray.remote(num_cpus=0)
    def train():
        return train_on_workers(source.open, RECIPE, group, split="test")

    return train.remote()


def wait_for(condition, training):
    """Return the first value of the condition that is true; fail as soon as the run has ended without it."""
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        ended, _ = ray.wait([training], timeout=0.05)
        assert not ended, ray.get(training)
    return found


def assert_as_undisturbed(pipeline, folder, result):
    alone = TrainingRun(pipeline, RECIPE, LocalContext())
    assert result.metrics == pytest.approx(alone.run("test").metrics)
    newest = max((folder / "ray/run").glob("checkpoint_*/state.pt")).parent
    state = load_state(newest)
    assert state["step"] == alone.step
    for name, value in state["model"].items():
        torch.testing.assert_close(value, alone.module.state_dict()[name], rtol=0, atol=1e-9)


def test_a_run_grows_with_the_cluster_and_ends_the_same(cluster, tmp_path):
    training = start_training(tmp_path, "SlowAlone", {"pace": 0.05}, (1, 2))
    wait_for(lambda: list((tmp_path / "ray/run").glob("checkpoint_*/state.pt")), training)
    cluster.add_node(num_cpus=1)
    result = ray.get(training, timeout=200)
    assert_as_undisturbed(SlowAlone(), tmp_path, result)
    assert {point.metrics["num_workers"] for point in result.curve} == {1.0, 2.0}


def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint_and_nothing_else(cluster, tmp_path):
    training = start_training(tmp_path, "Gated", {"folder": str(tmp_path)}, 1)
    waiting = tmp_path / "waiting"
    os.kill(int(wait_for(lambda: waiting.exists() and waiting.read_text(), training)), signal.SIGKILL)
    result = ray.get(training, timeout=150)
    assert_as_undisturbed(Gated(str(tmp_path)), tmp_path, result)
