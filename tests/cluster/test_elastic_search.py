"""A search on a cluster that grows and shrinks: trials start as nodes join; a lost node costs only its own trials."""

import time
from pathlib import Path

import pytest
import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.cluster_utils import Cluster
from workloads import GatedTrials

from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.study import TrialResources, run_search
from vrgd_ray.training.connection import connect
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
TESTS = Path(__file__).parent.parent
PASSES = 320


@pytest.fixture
def cluster():
    """A cluster of one node with one CPU, to which nodes can be added."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    with connect(made.address):
        yield made
    made.shutdown()


def job(index):
    recipe = GatedTrials.reference.with_values(lr=0.01 * (index + 1))
    return Job(cell=Cell(recipe.batch_size, recipe.optimizer), role="search", index=index, recipe=recipe)


def start_search(folder):
    """Begin the search in a task, because nodes can only be added from the main thread."""
    pipeline = PipelineSource(name="workloads:GatedTrials", arguments={"folder": str(folder)}, search_path=str(TESTS))
    jobs = [job(index) for index in range(3)]

    class Jobs:
        """A source of the jobs; in here, so that it travels whole."""

        def __init__(self):
            self.waiting, self.results = list(jobs), {}

        @property
        def done(self):
            return len(self.results) == len(jobs)

        def next_job(self):
            return self.waiting.pop(0) if self.waiting else None

        def observe(self, job, result):
            self.results[job.index] = result

    @ray.remote(num_cpus=0)
    def search():
        source = Jobs()
        resources = TrialResources(concurrent_trials=3, checkpoint_every=0.0)
        run_search(source, pipeline, resources, storage=str(folder / "ray"))
        return source.results

    return search.remote()


def wait_for(condition, search):
    """Return once the condition holds; fail as soon as the search has ended without it."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        ended, _ = ray.wait([search], timeout=0.05)
        assert not ended, ray.get(search)


def at_gate(folder):
    """Trials that have come to the gate."""
    return list(folder.glob("waiting-*"))


def passes(folder):
    """Passes of all trials together."""
    return sum(path.stat().st_size for path in folder.glob("passes-*"))


def waiting_requests(cluster):
    """Placement groups that the autoscaler sees waiting."""
    return len(get_cluster_status(cluster.address).resource_demands.placement_group_demand)


def test_trials_start_as_nodes_join_and_a_lost_one_goes_on_from_its_checkpoint(cluster, tmp_path):
    search = start_search(tmp_path)
    wait_for(lambda: len(at_gate(tmp_path)) == 1 and waiting_requests(cluster) == 2, search)
    node = cluster.add_node(num_cpus=1)
    wait_for(lambda: len(at_gate(tmp_path)) == 2, search)
    assert waiting_requests(cluster) == 1

    cluster.remove_node(node, allow_graceful=False)
    (tmp_path / "open").touch()
    results = ray.get(search, timeout=200)

    assert {index: (result.error, result.steps) for index, result in results.items()} == dict.fromkeys(
        range(3), (None, 40)
    )
    # The two trials that no node was lost under, and the lost one: up to the gate, then from its last checkpoint, which
    # is at most two steps of eight passes back.
    assert PASSES * 3 <= passes(tmp_path) <= PASSES * 3 + 16
    for index, result in results.items():
        alone = train(GatedTrials(str(tmp_path)), job(index).recipe, LocalContext())
        assert result.metrics == pytest.approx(alone.metrics)
