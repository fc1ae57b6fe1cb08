"""The tuning of one cell: which trial its recipe comes from."""

import pytest
from simulation import DIVERGED, plan, result

from vrgd_ray.limit.cell_tuning import CellTuning
from vrgd_ray.limit.plan import space_context
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.job import Cell
from vrgd_ray.search.space import load_space
from vrgd_ray.training.result import TrainingResult


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
    assert tuning.failure is not None
    assert tuning.study.diverged == 3
