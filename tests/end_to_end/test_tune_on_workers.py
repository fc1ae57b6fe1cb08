"""A search whose every trial is a group of Ray Train workers, on a table of images."""

import sys
from pathlib import Path

import commands
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))
import generated

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1500)]


def test_a_subset_of_4000_images_with_two_workers_in_every_trial(tmp_path):
    generated.images(tmp_path / "data", sizes=(5000, 1500))
    arguments = ["data=data", "subset=4000"]
    few = ["--batch-sizes", "256", "--optimizers", "sgd", "--trials", "1", "--seeds", "2", "--epochs", "3"]
    machines = ["--workers-per-trial", "2", "--concurrent-trials", "1", "--margin", "0.5"]
    pipeline = ["--pipeline", "pipelines.image_classification", "--pipeline-args", *arguments]
    status, output = commands.run(tmp_path, *pipeline, *few, *machines, timeout=1400)
    assert status == 0, output
    found = commands.result(tmp_path, "image_classification")
    assert found["status"] == "finished"
    (cell,) = found["cells"]
    assert cell["verdict"] == "accept"
    assert len(cell["values"]) >= 2
    assert cell["steps"] == 3 * 4000 // 256
    workers = {run.data.metrics.get("num_workers") for run in commands.tracked_runs(tmp_path)} - {None}
    assert workers == {2.0}
