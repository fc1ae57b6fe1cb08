"""The same tracker against `mlflow server`: three levels, an outage, a restart, artifacts and a registered model."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from mlflow import MlflowClient

from vrgd_ray.tracking.mlflow import MlflowTracker
from vrgd_ray.tracking.tracker import GroupRecord, RunRecord

pytestmark = pytest.mark.slow


class Server:
    """An `mlflow server` on a free port of the loopback, that can be ended and started again."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def start(self):
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        options += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        options += ["--artifacts-destination", f"{self.folder}/artifacts"]
        output = (self.folder / "server.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options], stdout=output, stderr=output, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "server.txt").read_text()
            assert time.monotonic() < deadline, (self.folder / "server.txt").read_text()
            time.sleep(0.2)

    def answers(self):
        try:
            return urllib.request.urlopen(f"{self.address}/health", timeout=5).status == 200
        except OSError:
            return False

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)


@pytest.fixture
def server(tmp_path):
    started = Server(tmp_path)
    started.start()
    yield started
    started.end()


def record(index):
    return RunRecord(
        key=f"search/adamw/64/{index}",
        name=f"adamw 64 search {index}",
        tags={"role": "search"},
        params={"lr": 0.1},
        metrics={"accuracy": 0.9},
        samples=1280,
        group="cell/adamw/64",
        series=[(640, {"accuracy": 0.5}), (1280, {"accuracy": 0.9})],
    )


def open_tracker(server):
    tracker = MlflowTracker(server.address, "experiment")
    tracker.check()
    tracker.start(name="mine", search_id="abc", params={"trials": 8})
    return tracker


def test_a_run_on_workers_misses_nothing_while_the_server_is_gone(server, capsys):
    tracker = open_tracker(server)
    tracker.log_point(10, {"accuracy": 0.1})
    server.end()
    started = time.monotonic()
    for samples in range(20, 60, 10):
        tracker.log_point(samples, {"accuracy": samples / 100})
    assert time.monotonic() - started < 25  # one try costs time, not every point
    assert capsys.readouterr().err.count("does not answer") == 1
    server.start()
    tracker.log_point(60, {"accuracy": 0.6})
    tracker.finish("FINISHED", metrics={"final_accuracy": 0.6}, artifacts=[])
    client = MlflowClient(tracking_uri=server.address)
    history = client.get_metric_history(tracker._parent_id, "accuracy")
    assert [(point.step, point.value) for point in history] == [(step, step / 100) for step in range(10, 70, 10)]
    assert client.get_run(tracker._parent_id).info.status == "FINISHED"


@pytest.mark.long
def test_a_search_through_an_outage_and_a_restart(server, tmp_path):
    cell = {"key": "cell/adamw/64", "name": "adamw 64", "tags": {"role": "cell"}}
    tracker = open_tracker(server)
    tracker.log_group(GroupRecord(**cell))
    tracker.log_run(record(0))
    server.end()
    tracker.log_run(record(1))  # lost, with the process that remembers it
    server.start()

    tracker = open_tracker(server)
    for index in range(3):
        tracker.log_run(record(index))
    tracker.log_group(GroupRecord(**cell, metrics={"difference": 0.1}, samples=1280, status="FINISHED"))
    (tmp_path / "result.json").write_text("{}")
    tracker.finish("FINISHED", metrics={"samples": 3840.0}, artifacts=[tmp_path / "result.json"])
    line = tracker.register_model("net", [tmp_path / "result.json"], recipe={"lr": 0.1})
    assert "net, version 1" in line, line

    client = MlflowClient(tracking_uri=server.address)
    runs = client.search_runs([client.get_experiment_by_name("experiment").experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    assert sorted(by_name) == ["adamw 64", "adamw 64 search 0", "adamw 64 search 1", "adamw 64 search 2", "mine"]
    assert len(runs) == 5
    assert {run.info.status for run in runs} == {"FINISHED"}
    parents = {name: run.data.tags.get("mlflow.parentRunId") for name, run in by_name.items()}
    assert parents["adamw 64 search 2"] == by_name["adamw 64"].info.run_id
    assert parents["adamw 64"] == by_name["mine"].info.run_id
    kept = [item.path for item in client.list_artifacts(by_name["mine"].info.run_id)]
    assert "result.json" in kept
    assert len(kept) == 2
    (version,) = client.search_model_versions("name = 'net'")
    assert version.run_id == by_name["mine"].info.run_id
