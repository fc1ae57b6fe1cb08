"""Running the commands as a user does, in a process of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from mlflow import MlflowClient

SMALL = [
    "--margin",
    "0.1",
    "--trials",
    "2",
    "--seeds",
    "2",
    "--epochs",
    "2",
    "--batch-sizes",
    "64,128",
    "--concurrent-trials",
    "2",
]


def start(folder, *arguments, module="tune"):
    """Start the command in a session of its own, so that a signal can reach all of it."""
    command = [sys.executable, "-m", f"vrgd_ray.{module}", *arguments]
    output = (folder / "output.txt").open("a")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True, env=environment)


def run(folder, *arguments, module="tune", timeout=280):
    """Run the command to its end; return its exit status and everything it printed."""
    status = start(folder, *arguments, module=module).wait(timeout=timeout)
    return status, (folder / "output.txt").read_text()


def ledger(folder, name="digits"):
    """The finished jobs as the ledger holds them."""
    paths = sorted((folder / "runs" / name / "ledger").glob("*.json"))
    return [record for path in paths if "job" in (record := json.loads(path.read_text()))]


def wait_for_runs(folder, process, count, ledger="runs/digits/ledger"):
    """Return once the ledger holds so many finished runs."""
    deadline = time.monotonic() + 120
    while len(list((folder / ledger).glob("*.json"))) <= count:
        assert process.poll() is None, (folder / "output.txt").read_text()
        assert time.monotonic() < deadline, (folder / "output.txt").read_text()
        time.sleep(0.05)


def kill(process):
    """SIGKILL to the whole group at once, and to whatever it started that had left the group."""
    started = descendants(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    for each in started:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait(timeout=60)


def descendants(process):
    """Ids of all processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found, waiting = [], [process]
    while waiting:
        below = [pid for pid, parent in parents.items() if parent in waiting]
        found, waiting = found + below, below
    return found


def result(folder, name="digits"):
    return json.loads((folder / "runs" / name / "result.json").read_text())


def tracked_runs(folder):
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/runs/mlflow.db")
    return client.search_runs([client.get_experiment_by_name("vrgd").experiment_id], max_results=1000)


def verdicts(found):
    """What a search claims, without what depends on the clock."""
    timed = ("samples_per_second",)
    return [{key: value for key, value in cell.items() if key not in timed} for cell in found["cells"]]
