"""`vrgd train` whose own process is killed goes on where it was, in the same tracked run."""

import os
import signal
import time

import commands
import pytest
import torch
import yaml
from mlflow import MlflowClient

from vrgd_ray import Recipe
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun

RECIPE = Recipe(optimizer="vr_adamw", batch_size=32, lr=3e-3, epochs=60)


STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_ended_by_a_signal_then_resumed_it_ends_the_same_in_one_tracked_run(tmp_path, ending):
    (tmp_path / "best.yaml").write_text(yaml.safe_dump({"pipeline": "pipelines.digits", "recipe": RECIPE.to_dict()}))
    process = commands.start(
        tmp_path, "--config", "best.yaml", "--name", "one", "--checkpoint-every", "0.2epochs", module="train"
    )
    store, deadline = CheckpointStore(str(tmp_path / "runs/one/ray/train/checkpoints")), time.monotonic() + 120
    while max(store.steps(), default=0) < 300:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, ending) if ending == signal.SIGKILL else process.send_signal(ending)
    assert process.wait(timeout=60) == STATUS[ending]
    if ending != signal.SIGKILL:
        said = (tmp_path / "output.txt").read_text()
        assert "Go on:       python -m vrgd_ray.train --config best.yaml --name one" in said
        assert "Traceback" not in said
        assert [run.info.status for run in commands.tracked_runs(tmp_path)] == ["KILLED"]

    status, output = commands.run(tmp_path, "--resume", "--name", "one", module="train")
    assert status == 0, output
    assert "Restart 1: training goes on from sample" in output
    alone = TrainingRun(load_pipeline("pipelines.digits"), RECIPE, LocalContext())
    metrics = alone.run("test").metrics
    for name, value in store.load(alone.step)["model"].items():
        assert torch.equal(value, alone.module.state_dict()[name])

    (run,) = commands.tracked_runs(tmp_path)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final_accuracy"] == pytest.approx(metrics["accuracy"])
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs/mlflow.db")
    steps = [point.step for point in client.get_metric_history(run.info.run_id, "accuracy")]
    assert steps == [32 * step for step in sorted(alone.evaluation_steps)]
