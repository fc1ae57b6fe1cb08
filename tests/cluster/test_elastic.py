"""A run that gains and loses workers and machines ends with the parameters of the undisturbed run."""

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
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.connection import connect
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.events import Started
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.monitor import RunFailedError
from vrgd_ray.training.worker import WorkerGroup, train_on_workers
from vrgd_ray.training.worker_context import CheckpointInterval

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
RECIPE = Gated.reference.with_values(optimizer="vr_adamw", epochs=30)
HALF_A_SECOND = CheckpointInterval(seconds=0.5)
TESTS = Path(__file__).parent.parent


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of one node with one CPU, to which nodes can be added."""
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "10")  # Ray waits so long for a machine that is gone
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    with connect(made.address):
        yield made
    made.shutdown()


def start_training(folder, name, arguments, num_workers, recipe=RECIPE, interval=HALF_A_SECOND):
    """Begin the run in a task, because nodes can only be added from the main thread; it returns result and events."""
    source = PipelineSource(name=f"workloads:{name}", arguments=arguments, search_path=str(TESTS))
    group = WorkerGroup(
        num_workers=num_workers,
        storage=str(folder / "ray"),
        name="run",
        interval=interval,
        resize_every=3.0,
    )

    @ray.remote(num_cpus=0, max_retries=0)
    def train():
        events = []
        return train_on_workers(source.open, recipe, group, split="test", listen=events.append), events

    return train.remote()


def wait_for(condition, training):
    """Return the first value of the condition that is true; fail as soon as the run has ended without it."""
    deadline = time.monotonic() + 150
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        ended, _ = ray.wait([training], timeout=0.05)
        assert not ended, ray.get(training)
    return found


def store_of(folder):
    return CheckpointStore(str(folder / "ray/run/checkpoints"))


def wait_for_workers(folder, training, count):
    """Return once a checkpoint tells that so many workers train."""

    def so_many():
        newest = store_of(folder).newest(print)
        curve = newest[1]["curve"] if newest else []
        return bool(curve) and curve[-1]["metrics"]["num_workers"] == count

    wait_for(so_many, training)


def assert_as_undisturbed(pipeline, folder, result):
    alone = TrainingRun(pipeline, RECIPE, LocalContext())
    assert result.metrics == pytest.approx(alone.run("test").metrics)
    state = store_of(folder).load(alone.step)
    for name, value in state["model"].items():
        torch.testing.assert_close(value, alone.module.state_dict()[name], rtol=0, atol=1e-9)
    assert [point.samples for point in result.curve] == [24 * step for step in range(30, 301, 30)]


def workers_of(events):
    return [event.num_workers for event in events if isinstance(event, Started)]


def test_a_run_follows_the_cluster_up_down_and_up_again(cluster, tmp_path):
    training = start_training(tmp_path, "SlowAlone", {"pace": 0.05, "together": 0.02}, (1, 2))
    wait_for(lambda: store_of(tmp_path).steps(), training)
    first = cluster.add_node(num_cpus=1)
    wait_for_workers(tmp_path, training, 2)
    cluster.remove_node(first, allow_graceful=False)
    wait_for_workers(tmp_path, training, 1)
    cluster.add_node(num_cpus=1)
    result, events = ray.get(training, timeout=200)
    assert_as_undisturbed(SlowAlone(), tmp_path, result)
    assert workers_of(events) == [1, 2, 1, 2]


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint_and_nothing_else(cluster, tmp_path, rank):
    cluster.add_node(num_cpus=1)
    gate = {"folder": str(tmp_path), "rank": rank, "at_pass": 400}
    every_ten_steps = CheckpointInterval(samples=240)
    training = start_training(tmp_path, "Gated", gate, 2, interval=every_ten_steps)
    waiting = tmp_path / "waiting"
    process = wait_for(lambda: waiting.exists() and waiting.read_text(), training)
    wait_for(lambda: store_of(tmp_path).steps(), training)  # written in the background, also while training waits
    os.kill(int(process), signal.SIGKILL)
    result, events = ray.get(training, timeout=150)
    assert_as_undisturbed(Gated(str(tmp_path)), tmp_path, result)
    assert workers_of(events) == [2, 2]
    assert events[0].samples == 0 < [e for e in events if isinstance(e, Started)][1].samples


@pytest.mark.long
def test_a_checkpoint_of_another_recipe_in_the_storage_is_refused_with_what_differs(cluster, tmp_path):
    alone = TrainingRun(SlowAlone(), RECIPE, LocalContext())
    alone.train_step()
    store_of(tmp_path).save(alone.step, alone.state_dict())
    training = start_training(tmp_path, "SlowAlone", {}, 1, RECIPE.with_values(lr=0.5))
    with pytest.raises(RunFailedError, match=r"another recipe: lr = 0.02, not 0.5\."):
        ray.get(training, timeout=150)


@pytest.mark.long
def test_a_run_that_breaks_twice_alike_is_given_up_with_the_reason(cluster, tmp_path):
    training = start_training(tmp_path, "BrokenLoss", {}, 1)
    with pytest.raises(RunFailedError, match=r"the run was given up: ZeroDivisionError: division by zero"):
        ray.get(training, timeout=200)
