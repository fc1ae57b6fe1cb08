"""The tuning of one cell: which trial its recipe comes from."""

import pytest
from simulation import DIVERGED, plan, result

from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.plan import space_context
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.job import Cell
from vrgd_ray.search.space import load_space
from vrgd_ray.training.result import TrainingResult

LOST = TrainingResult(metrics={}, diverged=True, error="RuntimeError: lost")


@pytest.fixture
def tuning():
    context = space_context(plan(), Cell(64, "adamw"))
    study = CellStudy(load_space("adamw"), context, mode="max", num_trials=4, width=1, seed=0)
    return CellTuning(Cell(64, "adamw"), study, plan().reference.with_values(batch_size=64), "accuracy")


def pruned(accuracy):
    return TrainingResult(metrics={"accuracy": accuracy}, pruned=True, steps=2, samples=128)


def finish(tuning, results):
    jobs = []
    for each in results:
        jobs.append(tuning.next_job())
        tuning.observe(jobs[-1], each(jobs[-1].recipe))
    return jobs


def test_the_best_recipe_is_of_a_complete_trial_however_good_a_pruned_one_looked(tuning):
    complete = [lambda recipe: result(0.5, recipe), lambda recipe: result(0.6, recipe)]
    jobs = finish(tuning, [complete[0], lambda recipe: pruned(0.9), complete[1], lambda recipe: pruned(0.8)])
    assert tuning.best_recipe == jobs[2].recipe
    assert tuning.study.finished
    assert tuning.next_job() is None


def test_a_cell_whose_complete_trials_all_diverged_has_failed(tuning):
    finish(tuning, [lambda recipe: DIVERGED] * 3 + [lambda recipe: pruned(0.9)])
    assert tuning.best_recipe is None
    assert tuning.failure == ("of 4 trials, 3 diverged and 1 was stopped early (--no-prune trains them to their end)")
    assert tuning.diverged == 3


@pytest.mark.parametrize(
    ("results", "failure"),
    [
        ([DIVERGED] * 4, "all 4 trials diverged"),
        ([LOST] * 4, "all 4 trials failed: RuntimeError: lost"),
        ([DIVERGED, LOST, DIVERGED, DIVERGED], "of 4 trials, 3 diverged and 1 failed: RuntimeError: lost"),
    ],
)
def test_a_failure_counts_its_causes(tuning, results, failure):
    finish(tuning, [lambda recipe, each=each: each for each in results])
    assert tuning.failure == failure
