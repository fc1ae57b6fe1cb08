"""The Ray Tune run: pruning, reused processes, checkpoints, and a source that cannot go on."""

import os
from pathlib import Path

import pytest
from workloads import Blobs

from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.pruning import CellPruner
from vrgd_ray.search.study import TrialResources, run_search
from vrgd_ray.training.connection import connect
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parent.parent
BLOBS = PipelineSource(name="workloads:Blobs", arguments={}, search_path=str(TESTS))
BLIND = 1e-9


class Jobs:
    """A source of given jobs."""

    def __init__(self, jobs, on_result=lambda: None):
        self.waiting, self.results, self.on_result, self.number = list(jobs), {}, on_result, len(jobs)

    @property
    def done(self):
        return len(self.results) == self.number

    def next_job(self):
        return self.waiting.pop(0) if self.waiting else None

    def observe(self, job, result):
        self.results[job.key] = result
        self.on_result()


def job(index, lr, role="search"):
    recipe = Blobs.reference.with_values(lr=lr)
    return Job(cell=Cell(recipe.batch_size, recipe.optimizer), role=role, index=index, recipe=recipe)


@pytest.fixture(scope="module", autouse=True)
def ray():
    with connect(None):
        yield


def test_trials_that_fall_behind_are_pruned_and_the_others_are_what_they_would_have_been(tmp_path):
    """In one reused process, with a checkpoint at every step: none is taken for one of the next trial."""
    jobs = [*(job(index, 0.02) for index in range(4)), job(4, BLIND), job(5, 0.03), job(0, BLIND, role="confirm")]
    source = Jobs(jobs)
    noting = PipelineSource(name="workloads:NotingProcess", arguments={"folder": str(tmp_path)}, search_path=str(TESTS))
    resources, pruner = TrialResources(checkpoint_every=0.0), CellPruner("accuracy", "max")
    run_search(source, noting, resources, storage=str(tmp_path / "ray"), pruner=pruner)

    pruned = source.results.pop("search/adamw/24/4")
    assert (pruned.pruned, pruned.diverged, pruned.error) == (True, False, None)
    assert (pruned.steps, pruned.samples, len(pruned.curve)) == (8, 8 * 24, 2)
    assert pruned.metrics["accuracy"] == pruned.curve[-1].metrics["accuracy"] < 0.7
    assert pruned.seconds > 0
    assert len(source.results) == 6
    for each in jobs:
        if (found := source.results.get(each.key)) is not None:
            alone = train(Blobs(), each.recipe, LocalContext(), split=each.split)
            assert (found.pruned, found.error, found.metrics, found.steps) == (False, None, alone.metrics, 40)
    assert list((tmp_path / "ray").rglob("state.pt")) == []
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 7
    assert len(set(processes)) == 1
    assert str(os.getpid()) not in processes


def test_what_the_source_raises_ends_the_search_and_no_trial_is_repeated(tmp_path):
    def full():
        raise OSError(28, "No space left on device")

    source = Jobs([job(index, 0.02) for index in range(4)], on_result=full)
    with pytest.raises(OSError, match="No space left"):
        run_search(source, BLOBS, TrialResources(), storage=str(tmp_path))
    assert len(source.results) == 1
