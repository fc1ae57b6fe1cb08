"""The finder against a simulated trainer whose answer is known."""

import math
import random
import time
from collections import Counter

import pytest
from simulation import DIVERGED, SimulatedPipeline, plan, run, search, train

from vrgd_ray.config import ConfigError
from vrgd_ray.limit import finder as finder_module
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.outcome import build_outcome
from vrgd_ray.limit.power import acceptance, smallest_margin
from vrgd_ray.report import scale_sentence, summary_sentence
from vrgd_ray.report.gain import gain_sentence
from vrgd_ray.report.reading import rejection
from vrgd_ray.search.job import Cell
from vrgd_ray.training.result import TrainingResult


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
    assert rejection(cell) == "all diverged"
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


def test_a_wall_clock_that_jumps_neither_ends_a_search_nor_keeps_it_alive(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(finder_module.time, "monotonic", lambda: now)
    finder = Finder(plan(), SimulatedPipeline(), max_seconds=3600)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert finder.next_job() is not None
    monkeypatch.setattr(time, "time", lambda: 0.0)
    now += 3601
    assert finder.next_job() is None
    assert "time limit" in finder.stop_reason


def test_limit_on_samples_ends_the_search_before_it_is_exceeded_and_keeps_the_claim():
    whole = search(limits={"adamw": 256, "vr_adamw": 64})
    total = sum(result.samples for _, result in whole.finished.values())
    finder = Finder(plan(), SimulatedPipeline(), max_samples=total // 2)
    run(finder, lambda job: train(job, {"adamw": 256, "vr_adamw": 64}))
    found = outcome(finder)
    assert (found["status"], found["reason"]) == ("stopped", "the limit on samples was reached")
    assert total // 2 - 8192 < found["cost"]["samples"] <= total // 2
    assert found["largest"]["batch_size"] in (64, 128)


def test_limit_on_samples_counts_earlier_starts_and_lets_a_finished_search_be_replayed():
    whole = search(limits={"adamw": 64, "vr_adamw": 64})
    replayed = Finder(plan(), SimulatedPipeline(), (), whole.finished, max_samples=1)
    assert run(replayed, lambda job: pytest.fail("trained")).stop_reason is None
    assert outcome(replayed) == outcome(whole)
    half = dict(list(whole.finished.items())[:20])
    stopped = run(Finder(plan(), SimulatedPipeline(), (), half, max_samples=20 * 8192), lambda job: train(job, {}))
    assert "samples" in stopped.stop_reason
    assert len(stopped.finished) == 20


@pytest.mark.parametrize(
    ("metrics", "word"),
    [({"accuracy": math.nan}, "finite"), ({"accuracy": math.inf}, "finite"), ({"loss": 0.1}, "nothing for its metric")],
)
def test_a_result_without_a_finite_metric_is_a_broken_run(metrics, word):
    broken = TrainingResult(metrics=metrics, steps=3)
    finder = search(lambda job: broken if job.cell == Cell(64, "adamw") else train(job, {}))
    cell = next(c for c in outcome(finder)["cells"] if (c["batch_size"], c["optimizer"]) == (64, "adamw"))
    assert cell["verdict"] == "reject"
    assert word in cell["reason"]
    stopped = search(lambda job: broken)
    assert word in stopped.failure


def starts_at(noise_scale, **limits):
    return search(lambda job: train(job, limits, noise_scale=noise_scale))


def test_each_optimizer_starts_where_the_noise_scale_of_the_tuned_reference_points():
    finder = starts_at(300.0, adamw=256, vr_adamw=256)
    assert [cell.batch_size for cell in finder.runs if cell.optimizer == "adamw"] == [256, 512]
    found = outcome(finder)
    assert (found["noise_scale"], found["starts"]) == (300.0, {"adamw": 256, "vr_adamw": 256})
    assert found["largest"]["batch_size"] == 256
    cells = {(c["optimizer"], c["batch_size"]): c for c in found["cells"]}
    assert cells["adamw", 256]["level_per_look"] == pytest.approx(0.05 / 2 / 2 / 2)
    assert cells["adamw", 64]["level_per_look"] == pytest.approx(0.05 / 2 / 2 / 2 / 2)
    assert cells["vr_adamw", 64]["level_per_look"] == pytest.approx(0.05 / 2 / 2 / 2 / 3)
    assert cells["adamw", 64]["verdict"] == cells["adamw", 64]["claim"] == "not tested"


@pytest.mark.parametrize(("noise_scale", "share"), [(None, 1.0), (300.0, 0.5)])
def test_the_power_that_is_reported_is_that_of_the_climb(noise_scale, share):
    finder = starts_at(noise_scale)
    power, rule = outcome(finder)["power"], Criterion(margin=0.01, mode="max", alpha=0.025 * share, paired=True)
    assert power["margin_in_std"] == pytest.approx(0.01 / power["seed_std"])
    assert power["acceptance"] == acceptance(rule, power["margin_in_std"])
    assert power["detectable"] == pytest.approx(smallest_margin(rule) * power["seed_std"])
    for seeds in (5, 10):
        one_look = Criterion(margin=0.01, mode="max", alpha=0.0125 * share, looks=(seeds,), paired=True)
        assert power[f"detectable_{seeds}"] == pytest.approx(smallest_margin(one_look) * power["seed_std"])


def test_a_start_that_is_not_accepted_goes_down_to_the_limit():
    finder = starts_at(600.0, adamw=64, vr_adamw=128)
    assert {name: ladder.largest for name, ladder in finder.ladders.items()} == {"adamw": 64, "vr_adamw": 128}
    assert finder.runs[Cell(64, "adamw")].contest.criterion.alpha == pytest.approx(0.05 / 2 / 2 / 3)


@pytest.mark.parametrize("noise_scale", [None, 80.0])
def test_an_unresolved_or_small_noise_scale_starts_at_the_bottom_with_the_whole_level(noise_scale):
    finder = starts_at(noise_scale, adamw=64)
    assert finder.ladders["adamw"].start == 64
    assert finder.runs[Cell(64, "adamw")].contest.criterion == finder.climb_criterion


def test_the_start_comes_from_the_best_tuning_trial_and_before_any_confirmation():
    def trainer(job):
        best = job.recipe.lr == 1e-3 or job.role != "search"
        return train(job, {}, noise_scale=300.0 if best and job.role == "search" else 40.0)

    finder = search(trainer)
    assert finder.noise_scale == 300.0
    first = [job.role for job, _ in finder.finished.values()][: finder.plan.trials]
    assert first == ["search"] * finder.plan.trials


def test_a_resolution_brackets_the_limit_between_rungs():
    finder = search(limits={"adamw": 100, "vr_adamw": 40}, resolution=1.25)
    assert {name: ladder.largest for name, ladder in finder.ladders.items()} == {"adamw": 88, "vr_adamw": 40}
    cell = next(c for c in outcome(finder)["cells"] if (c["batch_size"], c["optimizer"]) == (88, "adamw"))
    assert (cell["verdict"], cell["claim"]) == ("accept", "confirmed")
    assert cell["alpha"] == pytest.approx(0.05 / 2 * 0.25 / 2)
    assert outcome(finder)["largest"]["batch_size"] == 88


def test_the_first_trial_of_a_cell_is_its_neighbours_best_by_the_law_that_predicts_best():
    """The best rate grows linearly here, so the second cell starts with the root, and the third linearly."""

    def trainer(job):
        best = 1e-3 * job.cell.batch_size / 32
        return TrainingResult(metrics={"accuracy": 0.95 - 1e-3 * abs(math.log(job.recipe.lr / best))}, steps=1)

    finder = search(trainer, optimizers=("adamw",))
    first = {cell: r.tuning.study.suggestions[0]["lr"] for cell, r in finder.runs.items()}
    best = {cell.batch_size: r.tuning.best_recipe for cell, r in finder.runs.items()}
    reference = finder.reference.recipe
    assert first[Cell(64, "adamw")] == pytest.approx(math.sqrt(2) * reference.lr)
    assert (reference.lr, best[64].lr) == (1e-3, 2e-3)
    assert first[Cell(128, "adamw")] == pytest.approx(2 * best[64].lr)
    job, _ = finder.finished["search/adamw/128/0"]
    assert job.recipe.lr == first[Cell(128, "adamw")]
    assert job.recipe.warmup_fraction == best[64].warmup_fraction


@pytest.mark.parametrize("optimizers", [("lamb", "vr_lamb"), ("vr_lamb", "lamb")])
def test_a_twin_of_another_family_than_the_reference_starts_from_its_bases_first_cell(optimizers):
    generator = random.Random(5)
    plain = search(optimizers=optimizers)
    shuffled = search(optimizers=optimizers, order=lambda jobs: generator.randrange(len(jobs)), concurrent=4)
    first, _ = plain.finished["search/vr_lamb/32/0"]
    assert first.recipe.lr == plain.runs[Cell(32, "lamb")].tuning.best_recipe.lr
    assert {k: j.recipe for k, (j, _) in plain.finished.items()} == {
        k: j.recipe for k, (j, _) in shuffled.finished.items()
    }
    assert search(optimizers=("vr_lamb",)).done


def won_by_vr(gain=0.02, control=lambda job: 0.0, **changes):
    """vr_adamw reaches 256, adamw 64; `control` says what its controls lose, or how a run of them ends instead."""

    def trainer(job):
        base = train(job, {"adamw": 64, "vr_adamw": 256})
        loss = control(job) if job.role in ("constant", "shuffled") else 0.0
        if isinstance(loss, TrainingResult):
            return loss
        value = base.metrics["accuracy"] - loss
        return TrainingResult(metrics={"accuracy": value}, steps=base.steps, samples=base.samples, curve=base.curve)

    return search(trainer, **changes)


def test_a_control_that_an_error_broke_is_no_evidence_for_the_scale():
    lost = TrainingResult(metrics={}, diverged=True, error="OutOfMemoryError: CUDA out of memory")
    found = outcome(won_by_vr(control=lambda job: lost if job.index == 1 else 0.02))
    assert found["controls"]["constant"]["verdict"] == found["controls"]["shuffled"]["verdict"] == "not tested"
    assert gain_sentence(found) == ""


def test_a_vr_optimizer_that_wins_is_trained_again_with_its_controls_on_the_same_seeds():
    finder = won_by_vr(control=lambda job: 0.02)
    contest = finder.runs[Cell(256, "vr_adamw")].contest
    for role in ("constant", "shuffled"):
        jobs = [job for job, _ in finder.finished.values() if job.role == role]
        assert [job.recipe.seed for job in jobs] == [contest.arm.seed_of(i) for i in range(contest.seeds_wanted)]
        assert {job.recipe.with_values(gsnr_control=None, seed=0) for job in jobs} == {
            contest.arm.recipe.with_values(seed=0)
        }
        assert {job.recipe.gsnr_control for job in jobs} == {role}
        assert {job.split for job in jobs} == {"test"}
        assert outcome(finder)["controls"][role]["verdict"] == "better"
        assert outcome(finder)["controls"][role]["lower"] > 0


@pytest.mark.parametrize(
    ("loss", "verdict"), [(0.0, "equal"), (0.05, "better"), (DIVERGED, "diverged")], ids=["none", "large", "diverging"]
)
def test_the_controls_say_where_the_gain_comes_from(loss, verdict):
    controls = outcome(won_by_vr(control=lambda job: loss))["controls"]
    assert (controls["batch_size"], controls["optimizer"]) == (256, "vr_adamw")
    assert controls["constant"]["verdict"] == controls["shuffled"]["verdict"] == verdict


def test_controls_too_noisy_to_tell_are_called_unclear():
    def control(job):
        return random.Random(job.key).choice([-0.03, 0.04])

    assert outcome(won_by_vr(control=control))["controls"]["shuffled"]["verdict"] == "unclear"


@pytest.mark.parametrize("changes", [{"controls": False}, {"optimizers": ("adamw",)}], ids=["off", "no twin"])
def test_without_a_vr_winner_or_when_switched_off_no_controls_are_trained(changes):
    finder = won_by_vr(**changes)
    assert finder.done
    assert outcome(finder)["controls"] is None
    assert not [job for job, _ in finder.finished.values() if job.role in ("constant", "shuffled")]


def test_a_twin_that_wins_at_the_reference_batch_only_has_no_gain_to_explain():
    told = outcome(search(limits={"adamw": 32, "vr_adamw": 32}))
    assert (told["largest"], told["controls"]) == (None, None)
    assert told["recommended"]["recipe"]["optimizer"] == "adamw"


def test_between_equals_the_base_comes_first_and_has_no_gain_to_explain():
    told = outcome(search(limits={"adamw": 128, "vr_adamw": 128}))
    assert (told["largest"]["batch_size"], told["largest"]["optimizer"]) == (128, "adamw")
    assert told["controls"] is None


def test_what_an_error_broke_is_tried_again_on_resume_and_what_diverged_is_not():
    def out_of_memory(job):
        if job.cell.batch_size == 64:
            return TrainingResult(metrics={}, diverged=True, error="OutOfMemoryError: too much")
        return train(job, {"adamw": 128})

    broken = search(out_of_memory, optimizers=("adamw",))
    cell = outcome(broken)["cells"][0]
    assert cell["reason"].endswith("OutOfMemoryError: too much")
    assert rejection(cell) == "error"
    asked = []
    mended = search(
        lambda job: asked.append(job) or train(job, {"adamw": 128}), recorded=broken.finished, optimizers=("adamw",)
    )
    assert {job.edition for job in asked if job.role == "search" and job.cell.batch_size == 64} == {1}
    assert not [job for job in asked if job.cell.batch_size == 32]
    assert outcome(mended)["largest"]["batch_size"] == 128


def test_the_control_is_tested_at_the_level_of_the_climb():
    finder = search(limits={"adamw": 64})
    assert finder.control.criterion.alpha == finder.climb_criterion.alpha


def test_optimizers_share_alpha():
    assert Finder(plan(), SimulatedPipeline()).climb_criterion.level == pytest.approx(0.05 / 2 / 2)
    assert Finder(plan(optimizers=("adamw",)), SimulatedPipeline()).climb_criterion.level == pytest.approx(0.05 / 2)


def test_a_seed_of_the_reference_that_an_error_breaks_ends_the_search_at_once():
    """What only the whole of the test data shows breaks every seed alike."""
    broken = TrainingResult(metrics={}, diverged=True, error="ConfigError: all rows are of one class.")
    asked = []
    finder = search(lambda job: asked.append(job) or (train(job, {}) if job.role == "search" else broken), concurrent=1)
    assert [job.role for job in asked].count("reference") == 1
    assert asked[-1].role == "reference"
    assert finder.failure == "the reference cannot be trained on fresh seeds: ConfigError: all rows are of one class."


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


def test_a_full_grid_trains_every_rung_on_the_seeds_of_one_look_and_claims_what_the_climb_would():
    rule = Criterion(margin=0.01, mode="max", looks=(5,), paired=True)
    finder = search(limits={"adamw": 64, "vr_adamw": 128}, full_grid=True, criterion=rule, controls=False)
    trained = Counter(job.cell for job, _ in finder.finished.values() if job.role == "confirm")
    assert trained == dict.fromkeys(finder.plan.cells(), 5)
    assert {name: ladder.start for name, ladder in finder.ladders.items()} == {"adamw": 64, "vr_adamw": 32}
    assert {name: ladder.largest for name, ladder in finder.ladders.items()} == {"adamw": 64, "vr_adamw": 128}


def test_a_full_grid_goes_on_where_a_cell_diverges():
    def diverge_at_128(job):
        return DIVERGED if job.cell.batch_size == 128 else train(job, {})

    finder = run(Finder(plan(full_grid=True), SimulatedPipeline()), diverge_at_128)
    verdicts = {(c["batch_size"], c["optimizer"]): c["verdict"] for c in outcome(finder)["cells"]}
    assert verdicts[128, "adamw"] == verdicts[128, "vr_adamw"] == "reject"
    assert "not tested" not in verdicts.values()


def test_without_warm_starts_every_cell_begins_at_the_reference_recipe_scaled():
    finder = search(limits={"adamw": 64}, warm_start=False)
    firsts = {j.cell: j.recipe for j, _ in finder.finished.values() if (j.role, j.index) == ("search", 0)}
    ratios = {cell: recipe.lr / finder.plan.reference.lr for cell, recipe in firsts.items()}
    assert ratios == {cell: pytest.approx(math.sqrt(cell.batch_size / 32)) for cell in firsts}
    assert len(firsts) > 3


def test_a_tuned_reference_that_diverges_on_a_fresh_seed_says_what_to_search_instead():
    finder = search(lambda job: DIVERGED if job.role == "reference" else train(job, {}))
    assert finder.failure is not None
    assert "a seed diverged" in finder.failure
    assert "--set lr=LOW:HIGH" in finder.failure


def with_pruned_infinity(job):
    if job.role == "search" and job.index == 5 and job.cell == Cell(64, "adamw"):
        return TrainingResult(metrics={"accuracy": -math.inf}, pruned=True, steps=10, samples=1000)
    return train(job, {"adamw": 128})


def test_a_trial_pruned_with_an_infinite_metric_has_diverged():
    finder = search(with_pruned_infinity, optimizers=("adamw",), trials=8)
    cell = outcome(finder)["cells"][0]
    assert (cell["diverged"], cell["pruned"], cell["verdict"]) == (1, 0, "accept")


def test_a_record_of_such_a_trial_from_before_is_resumed():
    finder = search(with_pruned_infinity, optimizers=("adamw",), trials=8)
    job, _ = finder.finished["search/adamw/64/5"]
    before = TrainingResult(metrics={}, diverged=True, pruned=True, error="the run gave accuracy = -inf", samples=1000)
    recorded = {key: run for key, run in finder.finished.items() if key.startswith("search/adamw/32")}
    recorded |= {job.key: (job, before)}
    assert search(with_pruned_infinity, recorded=recorded, optimizers=("adamw",), trials=8).done


RELATIVE = Criterion(margin=0.01, mode="max", looks=(5, 10), relative=True, paired=True)


def test_a_relative_margin_ends_at_a_reference_seed_that_is_not_positive():
    def trainer(job):
        negative = TrainingResult(metrics={"accuracy": -0.02}, steps=1, samples=8192)
        return negative if job.role == "reference" and job.index == 3 else train(job, {})

    first = search(trainer, criterion=RELATIVE)
    again = search(trainer, criterion=RELATIVE, recorded=first.finished)
    for finder in (first, again):
        assert finder.failure == "a margin in per cent needs a positive accuracy; give --margin in units of the metric."
        assert outcome(finder)["status"] == "failed"


def diverges(role, index):
    """A seed of the reference's recipe diverges, after a batch was accepted at its first look."""

    def trainer(job):
        if (job.role, job.index) == (role, index):
            return DIVERGED
        return train(job, {}, noise=0.002 if job.cell.batch_size <= 64 else 0.02)

    return trainer


@pytest.mark.parametrize(("role", "index"), [("reference", 7), ("control", 2)])
def test_beside_a_reference_that_diverges_nothing_is_claimed_or_recommended(role, index):
    finder = search(diverges(role, index), optimizers=("adamw",))
    found = outcome(finder)
    assert found["cells"][0]["verdict"] == "accept"
    assert (found["largest"], found["recommended"]) == (None, None)
    assert "batch above 32 is claimed: a seed of the reference" in summary_sentence(found)


def test_after_a_failure_no_optimizer_is_said_to_move_the_limit():
    found = outcome(search(diverges("reference", 7)))
    assert found["status"] == "failed"
    assert scale_sentence(found) == "Whether vr_adamw moves the limit cannot be told: the search failed."


@pytest.mark.parametrize("error", [None, "RuntimeError: the trial's process was lost"])
def test_the_control_says_why_it_was_rejected_without_a_comparison(error):
    def trainer(job):
        broken = TrainingResult(metrics={}, diverged=True, error=error)
        return broken if job.role == "control" and job.index == 7 else train(job, {}, noise=0.012)

    control = outcome(search(trainer, optimizers=("adamw",)))["control"]
    assert (control["verdict"], control["reason"]) == ("reject", error or "a seed diverged")
    assert control["difference"] is control["lower"] is control["upper"] is None
    assert outcome(search(limits={"adamw": 64}))["control"]["reason"] is None


def test_no_bounds_of_the_first_look_stand_beside_a_seed_that_diverged_at_the_second():
    def trainer(job):
        broken = job.role == "confirm" and job.cell == Cell(64, "adamw") and job.index == 7
        return DIVERGED if broken else train(job, {}, noise=0.012)

    cell = outcome(search(trainer, optimizers=("adamw",)))["cells"][0]
    assert (cell["verdict"], cell["reason"], cell["difference"]) == ("reject", "a seed diverged", None)
    assert rejection(cell) == "seed diverged"


def test_trials_lost_for_several_causes_are_no_single_cause():
    def trainer(job):
        error = "RuntimeError: lost" if job.index else None
        broken = job.role == "search" and job.cell == Cell(64, "adamw")
        return TrainingResult(metrics={}, diverged=True, error=error) if broken else train(job, {})

    cell = outcome(search(trainer, optimizers=("adamw",)))["cells"][0]
    assert cell["reason"] == "of 4 trials, 1 diverged and 3 failed: RuntimeError: lost"
    assert rejection(cell) == "none usable"


def test_seeds_are_those_of_the_values_and_the_failed_ones_are_named():
    def trainer(job):
        broken = job.role == "confirm" and job.cell == Cell(64, "adamw") and job.index == 1
        return DIVERGED if broken else train(job, {})

    finder = search(trainer, optimizers=("adamw",))
    cell, reference = outcome(finder)["cells"][0], outcome(finder)["reference"]
    results = finder.runs[Cell(64, "adamw")].contest.arm.results
    assert cell["failed_seeds"] == [101]
    assert cell["seeds"] == [100 + index for index in sorted(results) if index != 1]
    assert cell["values"] == [results[seed - 100].metrics["accuracy"] for seed in cell["seeds"]]
    assert (len(reference["seeds"]), reference["failed_seeds"]) == (len(reference["values"]), [])
