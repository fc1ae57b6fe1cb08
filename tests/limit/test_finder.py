"""The finder against a simulated trainer whose answer is known."""

import random
from collections import Counter

import pytest
from simulation import DIVERGED, SimulatedPipeline, plan, run, search, train

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.outcome import build_outcome
from vrgd_ray.search.job import Cell


def outcome(finder):
    return build_outcome(finder, name="n", command="c", train_command="t", seconds=1.0)


def test_finds_the_known_limit_of_each_optimizer():
    finder = search(limits={"adamw": 64, "vr_adamw": 256})
    assert {name: ladder.largest for name, ladder in finder.ladders.items()} == {"adamw": 64, "vr_adamw": 256}
    largest = outcome(finder)["largest"]
    assert (largest["batch_size"], largest["optimizer"]) == (256, "vr_adamw")


def test_every_cell_gets_the_same_trials_and_the_reference_too():
    finder = search(limits={"adamw": 64, "vr_adamw": 64})
    counts = Counter(job.cell for job, _ in finder.finished.values() if job.role == "search")
    assert set(counts.values()) == {4}
    assert counts[finder.plan.reference_cell] == 4


def test_tuning_never_reads_test_data_and_confirmation_always_does():
    finder = search(limits={"adamw": 64})
    for job, _ in finder.finished.values():
        assert job.split == ("validation" if job.role == "search" else "test")


def test_confirmation_seeds_are_fresh_and_shared_between_paired_arms():
    finder = search(limits={"adamw": 64})
    seeds = {}
    for job, _ in finder.finished.values():
        seeds.setdefault(job.role, set()).add(job.recipe.seed)
    assert seeds["search"] == {finder.plan.tuning_seed}
    assert not seeds["search"] & (seeds["reference"] | seeds["confirm"] | seeds["control"])
    assert not seeds["control"] & seeds["reference"]
    assert seeds["confirm"] <= seeds["reference"]


def test_nothing_is_accepted_or_rejected_on_a_single_seed():
    finder = search(limits={"adamw": 64, "vr_adamw": 64})
    for cell in outcome(finder)["cells"]:
        if cell["verdict"] in ("accept", "reject"):
            assert len(cell["values"]) >= 5


def test_noise_asks_for_the_second_look_and_the_reference_grows_along():
    finder = search(lambda job: train(job, {}, noise=0.012))
    looked_twice = [run for run in finder.runs.values() if run.contest and run.contest.seeds_wanted == 10]
    assert looked_twice
    assert len(finder.reference.results) == 10


def test_a_diverging_trial_counts_as_the_worst_and_does_not_end_the_search():
    def trainer(job):
        return DIVERGED if job.role == "search" and job.index == 1 else train(job, {"adamw": 64, "vr_adamw": 64})

    finder = search(trainer)
    assert finder.ladders["adamw"].largest == 64
    assert all(cell["diverged"] == 1 for cell in outcome(finder)["cells"] if cell["trials"])


def test_a_cell_whose_trials_all_diverge_is_rejected_with_the_reason():
    finder = search(lambda job: DIVERGED if job.cell == Cell(128, "adamw") else train(job, {}))
    cell = next(c for c in outcome(finder)["cells"] if (c["batch_size"], c["optimizer"]) == (128, "adamw"))
    assert cell["verdict"] == "reject"
    assert "all 4 trials" in cell["reason"]
    assert finder.ladders["adamw"].largest == 64


def test_a_confirmation_seed_that_diverges_rejects_the_cell():
    def trainer(job):
        broken = job.cell == Cell(64, "adamw") and job.role == "confirm" and job.index == 2
        return DIVERGED if broken else train(job, {})

    assert search(trainer).ladders["adamw"].largest is None


@pytest.mark.parametrize("role", ["search", "reference"])
def test_a_reference_that_cannot_be_trained_stops_the_search_and_says_so(role):
    finder = search(lambda job: DIVERGED if job.cell == Cell(32, "adamw") and job.role == role else train(job, {}))
    assert "reference" in finder.failure
    assert outcome(finder)["status"] == "failed"


def test_control_is_the_reference_on_other_seeds():
    finder = search(limits={"adamw": 64})
    assert finder.control.verdict == "accept"
    assert finder.control.arm.recipe == finder.reference.recipe
    assert not finder.control.criterion.paired


def test_result_does_not_depend_on_who_finishes_first():
    """Invariant: suggestions depend on results in trial order (one seed, one width)."""
    limits = {"adamw": 128, "vr_adamw": 64}

    def recipes(finder):
        return {key: job.recipe for key, (job, _) in finder.finished.items()}

    generator = random.Random(3)
    first = search(limits=limits)
    second = search(limits=limits, order=lambda jobs: generator.randrange(len(jobs)))
    third = search(limits=limits, order=lambda jobs: len(jobs) - 1, concurrent=5)
    assert recipes(first) == recipes(second) == recipes(third)
    assert outcome(first)["cells"] == outcome(second)["cells"] == outcome(third)["cells"]


def test_another_seed_searches_elsewhere():
    def rates(finder):
        return [job.recipe.lr for job, _ in finder.finished.values() if job.role == "search"]

    assert rates(search(limits={"adamw": 64})) != rates(search(limits={"adamw": 64}, seed=1))


def test_stopped_anywhere_and_resumed_reaches_the_same_end_without_repeating_a_run():
    limits = {"adamw": 64, "vr_adamw": 128}
    whole = search(limits=limits)
    for cut in range(0, len(whole.finished), 7):
        recorded = dict(list(whole.finished.items())[:cut])
        trained = []

        def trainer(job, trained=trained):
            trained.append(job.key)
            return train(job, limits)

        resumed = search(trainer, recorded=recorded)
        assert not set(trained) & set(recorded)
        assert set(trained) | set(recorded) == set(whole.finished)
        assert outcome(resumed) == outcome(whole)


def test_resume_refuses_a_record_of_other_recipes():
    whole = search(limits={"adamw": 64})
    key = "search/adamw/32/1"
    job, result = whole.finished[key]
    from dataclasses import replace

    recorded = {**whole.finished, key: (replace(job, recipe=job.recipe.with_values(lr=0.5)), result)}
    with pytest.raises(ConfigError, match="cannot resume"):
        search(limits={"adamw": 64}, recorded=recorded)


def test_stop_asks_for_nothing_more_and_keeps_what_is_known():
    finder = Finder(plan(), SimulatedPipeline())
    for _ in range(12):
        job = finder.next_job()
        finder.observe(job, train(job, {}))
    finder.stop("enough")
    assert finder.next_job() is None
    assert finder.done
    assert outcome(finder)["status"] == "stopped"


def test_time_limit_stops_the_search():
    finder = run(Finder(plan(), SimulatedPipeline(), max_seconds=0.0), lambda job: train(job, {}))
    assert "time limit" in finder.stop_reason


def test_optimizers_share_alpha():
    assert Finder(plan(), SimulatedPipeline()).cell_criterion.level == pytest.approx(0.05 / 2 / 2)
    assert Finder(plan(optimizers=("adamw",)), SimulatedPipeline()).cell_criterion.level == pytest.approx(0.05 / 2)


def test_broken_listener_order_is_started_finished_decided():
    events = []

    class Recorder:
        def job_started(self, job):
            events.append(("started", job.key))

        def job_finished(self, job, result, *, replayed):
            events.append(("finished", job.key))

        def cell_decided(self, cell, verdict, *, control):
            events.append(("decided", cell, control))

    finder = search(limits={"adamw": 64, "vr_adamw": 32}, listeners=[Recorder()])
    for key in finder.finished:
        assert events.index(("started", key)) < events.index(("finished", key))
    decided = [event for event in events if event[0] == "decided"]
    assert len(decided) == len(set(decided)) == len([r for r in finder.runs.values() if r.verdict]) + 1
