"""A user's own pipeline, outside the package, on a cluster: Ray's runtime environment takes it to the workers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
import ray
from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

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
            file.write(__file__)
        assert CLASSES == 10
        return super().evaluate(model, data)
"""
CONFIG = "pipeline: mine_alone\nrecipe: {optimizer: adamw, batch_size: 32, lr: 0.003, epochs: 0.2}\n"


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


@pytest.fixture
def cluster():
    """A head with the job server; its agent's usual port may belong to another Ray on this machine."""
    head = {"num_cpus": 2, "include_dashboard": True, "dashboard_port": 0, "dashboard_agent_listen_port": free_port()}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


def dashboard(cluster):
    with ray.init(address=cluster.address, log_to_driver=False, logging_level="error") as context:
        return f"http://{context.dashboard_url}"


def job(address, command, *arguments):
    """`ray job COMMAND`: its exit status and everything it printed."""
    line = [f"{sys.prefix}/bin/ray", "job", command, "--address", address, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


def submit(address, *arguments):
    """Submit as soon as the head's agent is up."""
    deadline = time.monotonic() + 90
    while True:
        status, said = job(address, "submit", "--no-wait", *arguments)
        if status == 0 or "No available agent" not in said or time.monotonic() > deadline:
            assert status == 0, said
            return
        time.sleep(1)


def test_a_submitted_folder_is_where_the_workers_find_the_pipeline(cluster, tmp_path):
    home, seen = tmp_path / "home", tmp_path / "seen"
    home.mkdir()
    seen.mkdir()
    (home / "mine_alone.py").write_text(OWN)
    (home / "helper_of_mine.py").write_text("CLASSES = 10\n")
    (home / "best.yaml").write_text(CONFIG)
    environment = json.dumps({"env_vars": {"WHERE": str(seen), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}})
    command = [sys.executable, "-m", "vrgd_ray.train", "--config", "best.yaml", "--workers", "2", "--address", "auto"]
    output = ["--output", str(tmp_path / "runs"), "--tracking-uri", "none"]
    address = dashboard(cluster)
    folder = ["--submission-id", "mine", "--working-dir", str(home), "--runtime-env-json", environment]
    submit(address, *folder, "--", *command, *output)
    shutil.rmtree(home)  # it has been uploaded
    _, said = job(address, "logs", "--follow", "mine")
    assert "Test: accuracy" in said, said
    places = [file.read_text() for file in seen.iterdir()]
    assert places
    assert all("working_dir_files" in place for place in places), places
