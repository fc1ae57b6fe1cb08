"""clusters/local.yaml as it is shipped: `ray up`, a training run and `ray down` on machines of the test's own."""

import json
import os
import re
from pathlib import Path

import machines
import pytest
import yaml

from vrgd_ray import Recipe
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train

ROOT = Path(__file__).parents[2]
HEAD, WORKER = "10.0.0.1", "10.0.0.2"
FILLED_IN = {"[10.0.0.2, 10.0.0.3]": f"[{WORKER}]", "ssh_user: ubuntu": "ssh_user: root"}
CLUSTER = "/mnt/local.yaml"
TOKEN = {"RAY_AUTH_MODE": "token"}
RECIPE = Recipe(optimizer="vr_adamw", batch_size=32, lr=3e-3, epochs=0.28)  # ten steps
TRAIN = "python -m vrgd_ray.train --config /srv/best.yaml --name cluster --tracking-uri http://127.0.0.1:5000"
RUNNING = "pgrep gcs_server; pgrep raylet"
STATUS_OF = "curl -s -o /dev/null -w '%{http_code}'"

REASON = machines.why_not()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(590), pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A laptop, and a head and a worker that it can reach by SSH."""
    with machines.network(tmp_path_factory.mktemp("machines"), [HEAD, WORKER]) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network):
    """The same machines after `ray up` on the laptop."""
    laptop, head, worker = network
    text = (ROOT / "clusters/local.yaml").read_text()
    for shipped, here in FILLED_IN.items():
        assert shipped in text
        text = text.replace(shipped, here)
    (laptop.folder / "local.yaml").write_text(text)
    config = {"pipeline": "pipelines.digits", "recipe": RECIPE.to_dict()}
    (laptop.folder.parent / "shared/best.yaml").write_text(yaml.safe_dump(config))
    laptop.check("ray get-auth-token --generate", **TOKEN)
    laptop.check(f"ray up {CLUSTER} -y", timeout=300, **TOKEN)
    return laptop, head, worker


@pytest.fixture
def whole_cluster(cluster):
    """The same once Ray runs on the worker, which `ray up` does not wait for."""
    _, head, worker = cluster
    monitor = "tail -n 50 /tmp/ray/session_latest/logs/monitor.*"
    machines.until(lambda: worker.run(RUNNING).stdout, lambda: head.run(monitor).stdout, seconds=150)
    return cluster


def test_a_run_over_both_machines_is_the_run_of_one_process(cluster):
    laptop, head, _ = cluster
    workers = os.cpu_count() + 1  # more than one machine has cores, so some wait for the other
    command = f"cd ~/vrgd-ray && {TRAIN} --address auto --workers {workers} --storage /srv/storage --wait 120"
    done = laptop.run(f"ray exec {CLUSTER} '{command}'", timeout=300, **TOKEN)
    assert done.returncode == 0, done.stdout + head.run("tail -n 50 /tmp/ray/session_latest/logs/monitor.*").stdout
    alone = train(load_pipeline("pipelines.digits"), RECIPE, LocalContext(), split="test")
    assert f"Test: accuracy {alone.metrics['accuracy']:.4g}" in done.stdout

    search = """curl -s -H 'Content-Type: application/json' -d '{"experiment_ids": ["1"]}'"""
    runs = json.loads(head.check(f"{search} http://127.0.0.1:5000/api/2.0/mlflow/runs/search"))["runs"]
    assert {run["info"]["status"] for run in runs} == {"FINISHED"}
    roles = [tag["value"] for run in runs for tag in run["data"]["tags"] if tag["key"] == "role"]
    assert roles == ["train"]


def test_without_the_token_nobody_is_let_in(cluster):
    laptop, head, _ = cluster
    done = head.run(f"{TRAIN} --address {HEAD}:6379", RAY_AUTH_MODE="disabled", RAY_NUM_REDIS_GET_RETRIES="2")
    assert done.returncode == 2
    assert f"the Ray cluster at --address {HEAD}:6379 asks for its token" in done.stdout
    # Whoever may hand in jobs may run any code.
    job = """-H 'Content-Type: application/json' -d '{"entrypoint": "id"}'"""
    agent = f"http://{HEAD}:52365/api/job_agent/jobs/"
    assert laptop.check(f"{STATUS_OF} {job} {agent}") == "401"


@pytest.mark.parametrize(("service", "port"), [("the dashboard", 8265), ("MLflow", 5000)])
def test_pages_are_reached_from_the_head_alone(service, port, cluster):
    laptop, head, _ = cluster
    page = f"{STATUS_OF} http://{HEAD}:{port}/"
    assert head.check(page.replace(HEAD, "127.0.0.1")) in ("200", "401")
    assert laptop.run(page).stdout == "000"


def test_setup_installs_what_the_constraints_pin(whole_cluster):
    """The log of the stand-in for uv: there is no network to install from."""
    for machine in whole_cluster[1:]:
        (install,) = (machine.folder / "home/uv.log").read_text().splitlines()
        assert re.fullmatch(r"pip install --python \S+ --constraint \S+/constraints.txt .* --editable \S+", install)


@pytest.mark.long
def test_ray_down_ends_ray_on_every_machine(whole_cluster):
    """The last test of the file."""
    laptop, head, worker = whole_cluster
    assert head.run(RUNNING).stdout
    said = laptop.check(f"ray down {CLUSTER} -y", **TOKEN)
    assert head.run(RUNNING).stdout == "", said
    # `ray down` stops the head's Ray; the worker's ends by itself when it has missed its head for a minute.
    machines.until(lambda: worker.run(RUNNING).stdout == "", lambda: worker.run("ps ax").stdout, seconds=150)
