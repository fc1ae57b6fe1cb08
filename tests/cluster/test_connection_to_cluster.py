"""What is said, with status 2, to a command whose cluster is too small or has other versions."""

import json
import sys

import pytest
import ray
import torch
from ray._common.usage import usage_constants
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from vrgd_ray import train
from vrgd_ray.config import ConfigError
from vrgd_ray.training.connection import connect, wait_for_resources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
CONFIG = "pipeline: pipelines.digits\nrecipe: {optimizer: adamw, batch_size: 32, lr: 0.01, epochs: 1}\n"


@pytest.fixture
def cluster():
    """A cluster of one node with one CPU, to which nodes can be added."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    made.shutdown()


def start_training(cluster, folder, *arguments):
    config, output = folder / "best.yaml", folder / "runs"
    config.write_text(CONFIG)
    return train.main(["--config", str(config), "--output", str(output), "--address", cluster.address, *arguments])


def test_a_cluster_that_stays_too_small_ends_the_command_and_leaves_no_run(cluster, tmp_path, capsys):
    assert start_training(cluster, tmp_path, "--workers", "2", "--gpus-per-worker", "1", "--wait", "5") == 2
    first, last = capsys.readouterr().err.strip().splitlines()
    assert first.startswith("Waiting for 2 x 1 GPU; the cluster has 0 GPU (0 free).")
    assert last.startswith("vrgd train: waited 5 s in vain for 2 x 1 GPU")
    assert not list(tmp_path.glob("runs/*"))


def test_machines_that_join_end_the_wait_and_the_request_is_gone(cluster):
    asked = []

    def grow(sentence):
        asked.extend(group["state"] for group in placement_group_table().values())
        cluster.add_node(num_cpus=1)

    with connect(cluster.address):
        wait_for_resources([{"CPU": 1.0}] * 2, 60, grow)
        assert asked == ["PENDING"], "where the autoscaler reads what to add"
        assert {group["state"] for group in placement_group_table().values()} == {"REMOVED"}
        assert ray.cluster_resources()["CPU"] == 2


@pytest.mark.long
def test_another_ray_or_python_on_the_cluster_is_named(cluster, tmp_path, capsys):
    namespace, key = b"cluster", usage_constants.CLUSTER_METADATA_KEY
    gcs = ray._raylet.GcsClient(address=cluster.address)
    metadata = json.loads(gcs.internal_kv_get(key, namespace=namespace))
    changed = json.dumps({**metadata, "ray_version": "2.59.0", "python_version": "3.10.4"}).encode()
    gcs.internal_kv_put(key, changed, True, namespace=namespace)
    assert start_training(cluster, tmp_path) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    here = ".".join(map(str, sys.version_info[:3]))
    assert (
        f"runs Ray 2.59.0 on Python 3.10.4, this command Ray {ray.__version__} on Python {here}; start it" in sentence
    )


@pytest.mark.long
def test_a_machine_with_another_torch_is_named(cluster, tmp_path):
    """The second machine finds a torch of another version first."""
    (tmp_path / "torch-2.0.1.dist-info").mkdir()
    (tmp_path / "torch-2.0.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.0.1\n")
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    here = torch.__version__.partition("+")[0]
    message = rf"torch is 2\.0\.1 on the machine [\d.]+ and {here} where this command runs; install the same version"
    with pytest.raises(ConfigError, match=message), connect(cluster.address):
        pytest.fail("connected")
    assert not ray.is_initialized()
