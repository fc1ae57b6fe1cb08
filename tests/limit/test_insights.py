"""What the result says of trials, importances and series agrees with what was trained."""

import json
import math
import statistics
from dataclasses import replace

import pytest
from simulation import DIVERGED, Progress, TrainingResult, search, train
from simulation import result as simulated

from vrgd_ray.limit.outcome import build_outcome


def outcome(finder):
    return build_outcome(finder, name="n", command="c", train_command="t", seconds=1.0)


def test_every_trial_is_told_with_what_was_searched_and_what_came_of_it():
    finder = search(limits={"adamw": 64})
    told = outcome(finder)["tuning"]
    assert (told[0]["batch_size"], told[0]["optimizer"]) == finder.plan.reference_cell
    of_jobs = {}
    for job, result in finder.finished.values():
        if job.role == "search":
            of_jobs.setdefault(tuple(job.cell), {})[job.index] = (job.recipe, result.metrics["accuracy"])
    assert {(cell["batch_size"], cell["optimizer"]) for cell in told} == set(of_jobs)
    for cell in told:
        expected = of_jobs[cell["batch_size"], cell["optimizer"]]
        assert [trial["metric"] for trial in cell["trials"]] == [expected[i][1] for i in sorted(expected)]
        for index, trial in enumerate(cell["trials"]):
            assert all(getattr(expected[index][0], name) == value for name, value in trial["values"].items())


def test_diverged_trials_have_no_metric():
    finder = search(lambda job: DIVERGED if job.role == "search" and job.index == 1 else train(job, {}))
    assert {cell["trials"][1]["metric"] for cell in outcome(finder)["tuning"]} == {None}


def test_trials_that_were_stopped_early_or_broke_are_told_apart_from_diverged_ones():
    def trainer(job):
        if job.role != "search" or job.index < 2:
            return train(job, {})
        stopped = TrainingResult(metrics={"accuracy": 0.9}, pruned=True, steps=2, samples=128)
        return {2: DIVERGED, 3: stopped}.get(job.index, TrainingResult(metrics={}, diverged=True, error="lost"))

    told = outcome(search(trainer, trials=5))
    for cell in told["tuning"]:
        assert [trial["metric"] for trial in cell["trials"]][2:] == [None] * 3
        assert [trial["pruned"] for trial in cell["trials"]] == [None] * 3 + [{"samples": 128, "metric": 0.9}, None]
        assert [trial["error"] for trial in cell["trials"]] == [None] * 4 + ["lost"]
    counts = {"trials": 5, "diverged": 1, "broken": 1, "pruned": 1}
    for arm in (told["reference"], *told["cells"]):
        assert {name: arm[name] for name in counts} == counts


def test_numbers_that_are_not_finite_become_null():
    def trainer(job):
        result = train(job, {})
        bad = [math.nan, math.inf][job.index % 2]
        early = Progress(step=1, total_steps=2, samples=64, metrics={"accuracy": bad, "noise_scale": bad})
        return replace(result, curve=[early, *result.curve])

    told = outcome(search(trainer))
    json.dumps(told, allow_nan=False)
    assert told["curves"][0]["values"][0] is None
    assert told["curves"][0]["values"][1] is not None
    assert told["curves"][0]["series"] == {}


def test_the_learning_rate_is_most_important_where_it_alone_counts():
    def trainer(job):
        root = (job.recipe.batch_size / 32) ** 0.5
        off = abs(job.recipe.lr / (root * 1e-3) - 1) if job.role == "search" else 0.0
        return simulated(0.95 - 0.001 * off, job.recipe)

    found = outcome(search(trainer, trials=12, batch_sizes=(32, 64, 128)))["importances"]
    assert [(each["optimizer"], each["trials"]) for each in found] == [("adamw", 36), ("vr_adamw", 36)]
    for each in found:
        assert next(iter(each["shares"])) == "lr"
        assert sum(each["shares"].values()) == pytest.approx(1)


def test_series_are_medians_over_seeds_and_leave_out_what_no_seed_has():
    def trainer(job):
        recipe = job.recipe
        points = [
            Progress(step=s, total_steps=2, samples=s * 64, metrics={"accuracy": 0.9, "lr": 0.1} | logged)
            for s, logged in ((1, {}), (2, {"noise_scale": float(recipe.seed), "scale_q50": 0.5}))
        ]
        return TrainingResult(metrics={"accuracy": 0.9}, steps=2, samples=128, seconds=1.0, curve=points)

    told = outcome(search(trainer))
    middle = statistics.median(told["reference"]["seeds"])
    assert told["curves"][0]["series"] == {"noise_scale": [None, middle], "scale_q50": [None, 0.5]}


def test_what_reproduces_the_search_is_in_the_result_and_all_of_it_is_json():
    told = outcome(search(limits={"adamw": 64}, seed=3))
    assert (told["seed"], told["concurrent_trials"], told["data_fingerprint"]) == (3, 2, None)
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
