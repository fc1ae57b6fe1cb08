"""`vrgd tune` on the digits with a tiny budget, through Ray, Optuna and a real MLflow database."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import commands
import pytest
import torch
import yaml
from mlflow import MlflowClient

from vrgd_ray import Recipe
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One undisturbed search that the tests below read from all sides."""
    folder = tmp_path_factory.mktemp("finished")
    status, output = commands.run(folder, *commands.SMALL)
    assert status == 0, output
    return folder, output


def test_result_file_has_the_promised_fields(finished):
    found = commands.result(finished[0])
    assert found["status"] == "finished"
    assert {"schema_version", "pipeline", "metric", "mode", "margin", "alpha", "looks"} <= set(found)
    assert {"reference", "control", "cells", "largest", "recommended", "cost", "versions"} <= set(found)
    assert {"recipe", "values", "mean", "std"} <= set(found["reference"])
    cell_fields = "batch_size optimizer num_groups trials diverged seeds values mean std difference lower upper verdict"
    for cell in found["cells"]:
        assert {*cell_fields.split(), "claim", "steps", "samples_per_second", "recipe"} <= set(cell)
    assert [(c["batch_size"], c["optimizer"]) for c in found["cells"]] == [
        (64, "adamw"),
        (128, "adamw"),
        (32, "vr_adamw"),
        (64, "vr_adamw"),
        (128, "vr_adamw"),
    ]
    assert (found["margin"], found["looks"], found["alpha"]) == (0.1, [2, 4], 0.05)


def test_every_tested_cell_had_equal_trials_and_more_than_one_seed(finished):
    found = commands.result(finished[0])
    tested = [cell for cell in found["cells"] if cell["verdict"] != "not tested"]
    assert tested
    for cell in tested:
        assert cell["trials"] == found["reference"]["trials"] == 2
        assert len(cell["values"]) >= 2


def test_output_ends_with_table_sentence_and_where_to_look(finished):
    output = finished[1]
    assert "vr_adamw at batch 32" in output
    assert "difference" in output
    assert re.search("Largest batch without loss: (64|128) with", output)
    assert "python -m vrgd_ray.train --config runs/digits/best.yaml" in output
    assert "mlflow ui --backend-store-uri sqlite:///" in output
    assert "Traceback" not in output


def test_best_yaml_is_the_recommended_recipe(finished):
    folder = finished[0]
    best = yaml.safe_load((folder / "runs/digits/best.yaml").read_text())
    assert best["pipeline"] == "pipelines.digits"
    assert best["recipe"] == commands.result(folder)["recommended"]["recipe"]


def test_report_is_one_page_with_the_verdict(finished):
    page = (finished[0] / "runs/digits/report.html").read_text()
    assert "<svg" in page
    assert "vr_adamw" in page


def test_mlflow_holds_one_parent_and_one_run_for_every_training_run(finished):
    folder = finished[0]
    runs = commands.tracked_runs(folder)
    ledger = commands.ledger(folder)
    (parent,) = [run for run in runs if run.data.tags["role"] == "parent"]
    cells = {run.info.run_id: run for run in runs if run.data.tags["role"] == "cell"}
    assert {run.data.tags["mlflow.parentRunId"] for run in cells.values()} == {parent.info.run_id}
    children = [run for run in runs if run is not parent and run.info.run_id not in cells]
    for run in children:
        cell = cells[run.data.tags["mlflow.parentRunId"]]
        for name in ("batch_size", "optimizer"):
            assert run.data.tags[name] == cell.data.tags[name]
    assert Counter(run.data.tags["role"] for run in children) == Counter(line["job"]["role"] for line in ledger)
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in children:
        assert run.data.params["batch_size"] == run.data.tags["batch_size"]
        assert run.data.params["optimizer"] == run.data.tags["optimizer"]
        assert "accuracy" in run.data.metrics
    decided = [run for run in children if run.data.tags["role"] in ("confirm", "control")]
    assert all(run.data.tags["verdict"] in ("accept", "reject", "inconclusive") for run in decided)


def test_mlflow_shows_in_every_cell_what_decided_it(finished):
    cells = {
        (int(run.data.tags["batch_size"]), run.data.tags["optimizer"]): run.data
        for run in commands.tracked_runs(finished[0])
        if run.data.tags["role"] == "cell"
    }
    found = commands.result(finished[0])
    tested = [cell for cell in found["cells"] if cell["verdict"] != "not tested"]
    assert set(cells) == {(32, "adamw")} | {(cell["batch_size"], cell["optimizer"]) for cell in tested}
    for cell in tested:
        data = cells[cell["batch_size"], cell["optimizer"]]
        assert data.tags["verdict"] == cell["verdict"]
        assert data.params == {name: str(value) for name, value in cell["recipe"].items()}
        assert data.metrics["difference"] == pytest.approx(cell["difference"])
        assert data.metrics["lower"] == pytest.approx(cell["lower"])
        assert data.metrics["final_accuracy"] == pytest.approx(cell["mean"])
    reference = cells[32, "adamw"]
    assert reference.tags["control_verdict"] == found["control"]["verdict"]
    assert reference.metrics["control_difference"] == pytest.approx(found["control"]["difference"])


def test_interrupted_by_ctrl_c_then_resumed_it_reaches_the_same_verdict(finished, tmp_path):
    process = commands.start(tmp_path, *commands.SMALL)
    commands.wait_for_runs(tmp_path, process, 6)
    status, output = commands.run(tmp_path, *commands.SMALL, "--resume")
    assert status == 2
    assert "another run is under way" in output
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130, (tmp_path / "output.txt").read_text()
    assert commands.result(tmp_path)["status"] == "interrupted"
    assert "RUNNING" not in {run.info.status for run in commands.tracked_runs(tmp_path)}

    status, output = commands.run(tmp_path, *commands.SMALL, "--resume")
    assert status == 0, output
    assert commands.verdicts(commands.result(tmp_path)) == commands.verdicts(commands.result(finished[0]))
    runs = commands.tracked_runs(tmp_path)
    assert {run.info.status for run in runs} == {"FINISHED"}
    keys = [run.data.tags.get("vrgd.key") for run in runs]
    assert len(keys) == len(set(keys)) == len(commands.tracked_runs(finished[0]))


@pytest.mark.slow
def test_sigterm_to_the_whole_group_writes_what_is_known_and_closes_the_tracking(tmp_path):
    process = commands.start(tmp_path, *commands.SMALL)
    commands.wait_for_runs(tmp_path, process, 4)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM, (tmp_path / "output.txt").read_text()
    assert commands.result(tmp_path)["status"] == "stopped"
    assert "RUNNING" not in {run.info.status for run in commands.tracked_runs(tmp_path)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.long)])
def test_killed_at_random_moments_and_resumed_it_reaches_the_same_verdict(kills, finished, tmp_path):
    generator = random.Random(kills)
    whole = commands.ledger(finished[0])
    for moment in sorted(generator.choices(range(len(whole)), k=kills)):
        process = commands.start(tmp_path, *commands.SMALL, *_resume(tmp_path))
        commands.wait_for_runs(tmp_path, process, moment)
        time.sleep(generator.uniform(0, 1))  # where between two records, and how far into a start, is left to chance
        if process.poll() is None:
            commands.kill(process)
        _assert_no_half_written_record(tmp_path)
    status, output = commands.run(tmp_path, *commands.SMALL, *_resume(tmp_path))
    assert status == 0, output
    assert commands.verdicts(commands.result(tmp_path)) == commands.verdicts(commands.result(finished[0]))
    assert sorted(_keys(commands.ledger(tmp_path))) == sorted(_keys(whole))
    runs = commands.tracked_runs(tmp_path)
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert sorted(map(_identity, runs)) == sorted(map(_identity, commands.tracked_runs(finished[0])))


def _resume(folder):
    return ["--resume"] if (folder / "runs" / "digits").exists() else []


def _keys(ledger):
    return [f"{job['role']}/{job['cell']}/{job['index']}" for job in (record["job"] for record in ledger)]


def _identity(run):
    return run.data.tags.get("vrgd.key", "parent")


def _assert_no_half_written_record(folder):
    for path in (folder / "runs/digits/ledger").glob("*.json"):
        json.loads(path.read_text())


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MB, which a user can fill; skipped where the tests may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.slow
@pytest.mark.long
def test_a_full_disk_ends_the_search_with_a_sentence_and_it_can_be_resumed(finished, small_disk, tmp_path):
    filler = small_disk / "filler"
    process = commands.start(tmp_path, *commands.SMALL, "--storage", str(small_disk))
    commands.wait_for_runs(tmp_path, process, 4, ledger=small_disk / "digits" / "ledger")
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert process.wait(timeout=60) == 1, (tmp_path / "output.txt").read_text()
    output = (tmp_path / "output.txt").read_text()
    assert re.search(r"vrgd tune: cannot write to .*: No space left on device\. .*--resume", output)
    assert "Traceback" not in output
    filler.unlink()
    status, output = commands.run(tmp_path, *commands.SMALL, "--resume")
    assert status == 0, output
    assert commands.verdicts(commands.result(tmp_path)) == commands.verdicts(commands.result(finished[0]))


@pytest.mark.slow
@pytest.mark.long
def test_the_recommended_model_is_registered_on_request(finished, tmp_path):
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    status, output = commands.run(tmp_path, *commands.SMALL, "--resume", "--register", "digits-net")
    assert status == 0, output
    assert "Model:  digits-net, version 1" in output
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs/mlflow.db")
    (version,) = client.search_model_versions("name = 'digits-net'")
    folder = Path(client.download_artifacts(version.run_id, version.source.rpartition("/")[2], str(tmp_path)))
    best = yaml.safe_load((folder / "best.yaml").read_text())
    alone = TrainingRun(load_pipeline(best["pipeline"]), Recipe.from_dict(best["recipe"]), LocalContext())
    alone.run("test")
    registered = torch.load(folder / "state_dict.pt", weights_only=True)
    for name, value in alone.module.state_dict().items():
        torch.testing.assert_close(registered[name], value)
