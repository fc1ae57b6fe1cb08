"""Which trials are pruned: those behind the better half of their cell, never a seed, never the first few."""

import json
from types import SimpleNamespace

import pytest

from vrgd_ray import Recipe
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.search.pruning import CellPruner, report_of
from vrgd_ray.training.result import Progress, TrainingResult

RECIPE = Recipe(optimizer="adamw", batch_size=32, lr=0.01)
STOP, CONTINUE = "STOP", "CONTINUE"


def job(index, *, role="search", batch_size=64):
    return Job(cell=Cell(batch_size, "adamw"), role=role, index=index, recipe=RECIPE)


def point(tenth, value):
    return Progress(step=tenth, total_steps=10, samples=64 * tenth, metrics={"accuracy": value, "loss": 1.0})


def tell(pruner, job, values):
    """Report the values at 1, 2, 3, ... tenths; return where the trial was stopped, 10 for a complete one."""
    trial = SimpleNamespace(trial_id=job.key, config={"job": json.dumps(job.to_dict())})
    for tenth, value in enumerate(values, start=1):
        if pruner.on_trial_result(None, trial, report_of(point(tenth, value), "accuracy")) == STOP:
            return tenth
    return 10


@pytest.fixture
def pruner():
    """A pruner that has seen four complete trials with metrics 0.1, 0.2, 0.3 and 0.4."""
    pruner = CellPruner("accuracy", "max")
    assert [tell(pruner, job(index), [0.1 * (index + 1)] * 9) for index in range(4)] == [10] * 4
    return pruner


def test_a_trial_behind_the_median_is_stopped_at_the_first_rung(pruner):
    assert tell(pruner, job(4), [0.24] * 9) == 2
    assert tell(pruner, job(5), [0.3] * 9) == 10


def test_there_are_three_rungs(pruner):
    stopped = {tell(pruner, job(4 + good), [0.5] * good + [0.0] * (9 - good)) for good in range(9)}
    assert stopped == {2, 4, 8, 10}


@pytest.mark.parametrize("role", ["reference", "confirm", "control"])
def test_seeds_of_a_comparison_are_never_stopped(pruner, role):
    assert tell(pruner, job(7, role=role), [0.0] * 9) == 10


def test_cells_do_not_judge_each_other(pruner):
    assert tell(pruner, job(4, batch_size=128), [0.0] * 9) == 10


def test_the_first_four_trials_run_to_their_end():
    pruner = CellPruner("accuracy", "max")
    stopped = [tell(pruner, job(index), [value] * 9) for index, value in enumerate([0.9, 0.2, 0.1, 0.0, 0.1])]
    assert stopped == [10, 10, 10, 10, 2]


def test_smaller_is_better_where_the_mode_says_so():
    pruner = CellPruner("accuracy", "min")
    for index in range(4):
        tell(pruner, job(index), [0.1 * (index + 1)] * 9)
    assert tell(pruner, job(4), [0.4] * 9) == 2
    assert tell(pruner, job(5), [0.1] * 9) == 10


def test_a_report_without_the_metric_decides_nothing(pruner):
    trial = SimpleNamespace(trial_id="x", config={"job": json.dumps(job(6).to_dict())})
    assert pruner.on_trial_result(None, trial, {"payload": ""}) == CONTINUE


def test_a_resumed_search_goes_on_from_the_trials_on_record(pruner):
    past = [
        (job(index), TrainingResult(metrics={}, curve=[point(t, 0.1 * (index + 1)) for t in range(1, 11)]))
        for index in range(4)
    ]
    resumed = CellPruner("accuracy", "max", past)
    for index, values in enumerate(([0.24] * 9, [0.3] * 9, [0.5] * 5 + [0.1] * 4), start=4):
        assert tell(resumed, job(index), values) == tell(pruner, job(index), values)
