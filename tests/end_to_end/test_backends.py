"""The Ray Train backend against the loop in this process: the same configuration, the same parameters."""

import commands
import pytest
import torch
import yaml

from vrgd_ray import Recipe
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun

RECIPE = Recipe(optimizer="vr_adamw", batch_size=32, lr=3e-3, epochs=0.28, weight_decay=0.01)  # ten steps


def test_train_command_with_two_workers_gives_the_parameters_of_one(tmp_path):
    config = {"pipeline": "pipelines.digits", "recipe": RECIPE.to_dict()}
    (tmp_path / "best.yaml").write_text(yaml.safe_dump(config))
    status, output = commands.run(tmp_path, "--config", "best.yaml", "--workers", "2", "--name", "two", module="train")
    assert status == 0, output
    alone = TrainingRun(load_pipeline("pipelines.digits"), RECIPE, LocalContext())
    metrics = alone.run("test").metrics
    assert f"Test: accuracy {metrics['accuracy']:.4g}" in output

    together = CheckpointStore(str(tmp_path / "runs/two/ray/train/checkpoints")).load(alone.step)
    assert together["step"] == alone.step == 10
    for name, value in alone.module.state_dict().items():
        torch.testing.assert_close(together["model"][name], value, rtol=0, atol=1e-5)
    (run,) = commands.tracked_runs(tmp_path)
    assert (run.data.tags["role"], run.data.tags["restarts"], run.info.status) == ("train", "0", "FINISHED")
    assert run.data.metrics["num_workers"] == 2
    assert run.data.metrics["final_accuracy"] == pytest.approx(metrics["accuracy"])
    assert "2 workers" in output
    assert "step 10 of 10, 320 samples: accuracy" in output


@pytest.mark.slow
@pytest.mark.long
def test_nested_trial_gives_what_the_trial_in_an_actor_gives(tmp_path):
    from vrgd_ray.pipeline import PipelineSource
    from vrgd_ray.search.study import TrialResources, ray_resources, run_search
    from vrgd_ray.training.connection import connect

    class OneJob:
        """A source of a single job."""

        done, taken, result = False, False, None

        def next_job(self):
            if self.taken:
                return None
            self.taken = True
            return Job(cell=Cell(32, "vr_adamw"), role="confirm", index=0, recipe=RECIPE)

        def observe(self, job, result):
            self.done, self.result = True, result

    results = []
    for workers in (1, 2):
        source, resources = OneJob(), TrialResources(workers=workers)
        with connect(None, resources=ray_resources(resources), dashboard=workers > 1):
            pipeline = PipelineSource.here("pipelines.digits", {})
            run_search(source, pipeline, resources, storage=str(tmp_path / f"ray{workers}"))
        results.append(source.result)
    alone, nested = results
    assert (alone.error, nested.error) == (None, None)
    assert alone.metrics["loss"] == pytest.approx(nested.metrics["loss"], abs=1e-5)
    assert alone.steps == nested.steps == 10
