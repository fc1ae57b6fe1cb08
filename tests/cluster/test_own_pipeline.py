"""A user's own pipeline, outside the package, on a cluster: Ray's runtime environment takes it to the workers."""

import shutil
import subprocess
import sys

import pytest
import ray
from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OWN = """
import os
import torch
from helper_of_mine import CLASSES
from pipelines.digits import Digits

class Mine(Digits):
    "Digits, read from a module that only this folder has."

    def evaluate(self, model, data):
        kept = os.environ["WHERE"]
        with open(os.path.join(kept, str(os.getpid())), "w") as file:
            file.write(f"{__file__} {os.getcwd()}")
        assert CLASSES == 10
        return super().evaluate(model, data)
"""
CONFIG = "pipeline: mine_alone\nrecipe: {optimizer: adamw, batch_size: 32, lr: 0.003, epochs: 0.2}\n"


@pytest.fixture
def cluster():
    """A head with the job server."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": True, "dashboard_port": 0})
    yield made
    made.shutdown()


def dashboard(cluster):
    with ray.init(address=cluster.address, log_to_driver=False, logging_level="error") as context:
        return f"http://{context.dashboard_url}"


def test_a_submitted_folder_is_where_the_workers_find_the_pipeline(cluster, tmp_path):
    home, seen = tmp_path / "home", tmp_path / "seen"
    home.mkdir()
    seen.mkdir()
    (home / "mine_alone.py").write_text(OWN)
    (home / "helper_of_mine.py").write_text("CLASSES = 10\n")
    (home / "best.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "vrgd_ray.train", "--config", "best.yaml", "--workers", "2", "--address", "auto"]
    output = ["--output", str(tmp_path / "runs"), "--tracking-uri", "none"]
    submit = ["ray", "job", "submit", "--no-wait", "--submission-id", "mine", "--working-dir", str(home)]
    environment = ["--runtime-env-json", f'{{"env_vars": {{"WHERE": "{seen}"}}}}']
    ray_command = [f"{sys.prefix}/bin/ray", *submit[1:], "--address", dashboard(cluster), *environment, "--"]
    subprocess.run([*ray_command, *command, *output], check=True, capture_output=True, text=True, timeout=120)
    shutil.rmtree(home)  # it has been uploaded
    logs = [f"{sys.prefix}/bin/ray", "job", "logs", "--follow", "mine", "--address", dashboard(cluster)]
    said = subprocess.run(logs, capture_output=True, text=True, timeout=200)
    assert "Test: accuracy" in said.stdout, said.stdout + said.stderr
    places = [file.read_text() for file in seen.iterdir()]
    assert places
    assert all("working_dir_files" in place.split()[0] for place in places), places
