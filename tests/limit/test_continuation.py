"""Going on with a search under a larger plan: what is allowed, what is trained again, and what it costs."""

import pytest
from simulation import plan, search, train

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.continuation import check_continues, count_continuations, total_alpha
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.outcome import build_outcome
from vrgd_ray.search.job import Cell, Job
from vrgd_ray.training.result import TrainingResult

LIMITS = {"adamw": 64, "vr_adamw": 128}


def rule(seeds):
    return Criterion(margin=0.01, mode="max", looks=(seeds, 2 * seeds), paired=True)


def result(finder):
    return build_outcome(finder, name="n", command="c", train_command="t", seconds=1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trials": 9},
        {"seeds": 6, "criterion": rule(6)},
        {"batch_sizes": (32, 64, 96, 128, 256, 512, 1024)},
        {"resolution": 1.25},
    ],
)
def test_more_of_the_same_is_accepted(changes):
    check_continues(plan(**changes).to_dict(), plan().to_dict(), "runs/x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 3}, r"trials = 3 \(it was 4\)"),
        ({"seeds": 4, "criterion": rule(4)}, "seeds = 4"),
        ({"batch_sizes": (32, 64)}, "batch_sizes"),
        ({"seed": 1}, "seed = 1"),
        ({"settings": ("lr=0.1",)}, "settings"),
        ({"optimizers": ("adamw", "vr_adamw", "lamb")}, "optimizers"),
        ({"controls": False}, "controls = False"),
        ({"full_grid": True, "criterion": Criterion(margin=0.01, mode="max", looks=(5,), paired=True)}, "full_grid"),
        ({"criterion": Criterion(margin=0.02, mode="max", paired=True)}, "margin = 0.02"),
        ({"criterion": Criterion(margin=0.01, mode="max", alpha=0.1, paired=True)}, "alpha = 0.1"),
    ],
)
def test_anything_else_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        check_continues(plan(**changes).to_dict(), plan().to_dict(), "runs/x")


def test_a_search_from_before_a_field_had_the_fields_default():
    saved = plan().to_dict()
    del saved["full_grid"], saved["warm_start"]
    check_continues(plan().to_dict(), saved, "runs/x")
    with pytest.raises(ConfigError, match="full_grid = True"):
        check_continues(plan(full_grid=True).to_dict(), saved, "runs/x")


def test_a_coarser_resolution_is_refused():
    with pytest.raises(ConfigError, match="resolution = 2"):
        check_continues(plan().to_dict(), plan(resolution=1.5).to_dict(), "runs/x")


def continued(first, **changes):
    trained = []

    def trainer(job):
        trained.append(job.key)
        return train(job, LIMITS)

    finder = search(trainer, recorded=first.finished, continuation=1, **changes)
    return finder, trained


def test_further_rungs_use_every_finished_run_again():
    first = search(limits={"adamw": 512, "vr_adamw": 512}, batch_sizes=(32, 64, 128))
    trained = []

    def trainer(job):
        trained.append(job)
        return train(job, {"adamw": 256, "vr_adamw": 512})

    finder = search(trainer, recorded=first.finished, continuation=1, batch_sizes=(32, 64, 128, 256, 512))
    assert {name: ladder.largest for name, ladder in finder.ladders.items()} == {"adamw": 256, "vr_adamw": 512}
    assert not {job.key for job in trained} & set(first.finished)
    assert all(job.cell.batch_size > 128 for job in trained if job.role == "search")
    assert all(job.edition == 0 for job in trained)


def test_more_seeds_train_only_the_new_ones():
    first = search(limits=LIMITS)
    finder, trained = continued(first, seeds=8, criterion=rule(8))
    assert trained
    assert not set(trained) & set(first.finished)
    assert not [key for key in trained if key.startswith("search")]
    assert all(len(run.contest.arm.results) >= 8 for run in finder.runs.values())


def test_more_trials_keep_the_old_ones_and_a_run_with_another_recipe_gets_a_key_of_its_own():
    first = search(limits=LIMITS)
    finder, trained = continued(first, trials=6)
    assert not set(trained) & set(first.finished)
    reference = [job for job, _ in finder.finished.values() if job.role == "search" and job.cell.batch_size == 32]
    assert sum(job.key in first.finished for job in reference if job.cell.optimizer == "adamw") == 4
    changed = [key for key in trained if key.endswith("/edition-1")]
    for key in changed:
        original, _ = first.finished[key.removesuffix("/edition-1")]
        assert original.recipe != finder.finished[key][0].recipe
    assert changed


def test_a_continuation_that_is_killed_goes_on_where_it_was():
    first = search(limits=LIMITS)
    whole, _ = continued(first, trials=6)
    for cut in range(0, len(whole.finished), 60):
        recorded = {**first.finished, **dict(list(whole.finished.items())[:cut])}
        trained = []

        def trainer(job, trained=trained):
            trained.append(job.key)
            return train(job, LIMITS)

        again = search(trainer, recorded=recorded, continuation=1, trials=6)
        assert not set(trained) & set(recorded)
        assert result(again) == result(whole)


def test_every_continuation_tests_at_half_the_level_of_the_last_and_the_total_is_said():
    finder, _ = continued(search(limits=LIMITS), trials=5)
    found = result(finder)
    assert (found["continuation"], found["alpha"], found["alpha_total"]) == (1, 0.025, pytest.approx(0.075))
    assert found["level_per_look"] == pytest.approx(0.025 / 2 / 2)
    assert total_alpha(0.05, 0) == 0.05
    assert total_alpha(0.05, 50) == pytest.approx(0.1)


def test_what_a_continuation_no_longer_uses_still_counts_as_cost():
    first = search(limits=LIMITS)
    finder, trained = continued(first, trials=6)
    assert result(finder)["cost"]["trials"] == len(first.finished) + len(trained)


def test_the_edition_travels_with_the_job():
    first = search(limits=LIMITS)
    job = next(iter(first.finished.values()))[0]
    assert Job.from_dict(job.to_dict()) == job
    from dataclasses import replace

    again = replace(job, edition=2)
    assert Job.from_dict(again.to_dict()) == again
    assert again.key == job.key + "/edition-2"


def test_other_data_under_a_search_is_refused():
    known = plan(data_fingerprint="abc").to_dict()
    check_continues(plan(data_fingerprint=None).to_dict(), known, "here")
    check_continues(known, plan().to_dict(), "here")
    with pytest.raises(ConfigError, match=r"data_fingerprint = xyz \(it was abc\)"):
        check_continues(plan(data_fingerprint="xyz").to_dict(), known, "here")


def of_plan(**changes):
    return {"plan": plan(**changes).to_dict()}


def of_job(role, **changes):
    return {"job": {"role": role, **changes}}


@pytest.mark.parametrize(
    ("records", "continuations"),
    [
        ([of_job("reference"), of_job("confirm"), of_plan(trials=5)], 1),
        ([of_job("confirm"), of_plan(trials=5), of_plan(trials=6)], 1),
        ([of_job("confirm"), of_plan(trials=5), of_job("search"), of_plan(trials=6)], 1),
        ([of_job("confirm"), of_plan(trials=5), of_job("reference"), of_plan(trials=6)], 2),
        ([of_job("confirm"), of_plan(trials=5), of_job("control"), of_plan(trials=6)], 2),
        ([of_job("reference"), of_job("control"), of_plan(trials=5)], 0),
        ([of_job("confirm"), of_plan(data_fingerprint="abc"), of_job("confirm"), of_plan()], 0),
        ([of_job("confirm"), of_job("confirm", edition=1, continuation=1)], 1),
        ([of_job("confirm"), of_job("confirm", continuation=1), of_plan(trials=5)], 2),
    ],
)
def test_what_counts_is_a_larger_plan_after_a_comparison_or_a_recipe_tested_anew(records, continuations):
    assert count_continuations([of_plan(), *records]) == continuations


def test_a_plan_from_before_a_field_costs_nothing():
    old = plan().to_dict()
    del old["warm_start"], old["full_grid"], old["resolution"]
    assert count_continuations([{"plan": old}, of_job("confirm"), of_plan()]) == 0


def lost_trial(cell):
    """Two trainers: one that loses a trial of the cell, and one where that trial is the best by far."""

    def training(*, lost):
        def trainer(job):
            if (job.cell, job.role, job.index) != (cell, "search", 2):
                return train(job, LIMITS)
            if lost:
                return TrainingResult(metrics={}, diverged=True, error="RuntimeError: the trial's process was lost")
            return TrainingResult(metrics={"accuracy": 0.99}, steps=1, samples=8192)

        return trainer

    return training(lost=True), training(lost=False)


@pytest.mark.parametrize("cell", [Cell(64, "adamw"), Cell(32, "adamw")], ids=["a cell", "the reference"])
def test_seeds_tested_again_for_a_recipe_that_a_mended_error_changed_count_as_going_on(cell, tmp_path):
    starts = []
    for trainer in (*lost_trial(cell), lost_trial(cell)[1]):
        ledger = Ledger(tmp_path)
        recorded = ledger.read(plan().to_dict())
        counted = ledger.begin(plan().to_dict())
        finder = search(trainer, recorded=recorded, continuation=counted, listeners=[ledger], concurrent=3)
        starts.append((counted, finder, [key for key in finder.trained if key not in recorded]))
    assert [counted for counted, _, _ in starts] == [0, 0, 1]
    assert [finder.continuation for _, finder, _ in starts] == [0, 1, 1]
    assert any(key.startswith(("confirm", "reference")) and key.endswith("/edition-1") for key in starts[1][2])
    assert starts[2][2] == []
    again, last = (result(finder) for _, finder, _ in starts[1:])
    assert [again[name] for name in ("cells", "reference", "largest")] == [
        last[name] for name in ("cells", "reference", "largest")
    ]
    assert (last["alpha"], last["alpha_total"]) == (0.025, pytest.approx(0.075))


def test_a_mended_error_that_changes_no_tested_recipe_costs_nothing():
    cell = Cell(64, "adamw")

    def lose_the_last(job):
        lost = (job.cell, job.role, job.index) == (cell, "search", 3)
        return TrainingResult(metrics={}, diverged=True, error="lost") if lost else train(job, LIMITS)

    def worst(job):
        last = (job.cell, job.role, job.index) == (cell, "search", 3)
        return TrainingResult(metrics={"accuracy": 0.1}, steps=1) if last else train(job, LIMITS)

    first = search(lose_the_last)
    assert first.done
    again = search(worst, recorded=first.finished)
    assert "search/adamw/64/3/edition-1" in again.finished
    assert again.continuation == 0


def test_what_breaks_while_everything_is_judged_anew_is_not_tried_twice_in_one_start():
    first, second = lost_trial(Cell(64, "adamw"))
    trained = []

    def trainer(job):
        trained.append(job.key)
        if (job.cell, job.role, job.index) == (Cell(64, "vr_adamw"), "search", 1):
            return TrainingResult(metrics={}, diverged=True, error="lost")
        return second(job)

    recorded = search(first).finished
    recorded = {key: run for key, run in recorded.items() if not key.startswith("search/vr_adamw/64/1")}
    finder = search(trainer, recorded=recorded, concurrent=4)
    assert finder.continuation == 1
    assert trained.count("search/vr_adamw/64/1") == 1
    assert "search/vr_adamw/64/1/edition-1" not in trained


def test_a_search_extended_before_anything_was_compared_goes_on_with_another_reference():
    first = search(limits=LIMITS, warm_start=False)
    early = {key: run for key, run in first.finished.items() if run[0].cell == Cell(32, "adamw")}

    def later_trials_win(job):
        if job.role == "search" and job.cell == Cell(32, "adamw") and job.index == 5:
            return TrainingResult(metrics={"accuracy": 0.99}, steps=1)
        return train(job, LIMITS)

    again = search(later_trials_win, recorded=early, warm_start=False, trials=6)
    assert "reference/adamw/32/0/edition-1" in again.finished
    replayed = search(later_trials_win, recorded=again.trained, warm_start=False, trials=6)
    assert (again.continuation, replayed.continuation) == (0, 0)
    assert replayed.finished == again.finished
    cut = {key: run for key, run in again.trained.items() if key != "reference/adamw/32/3/edition-1"}
    mended = search(later_trials_win, recorded=cut, warm_start=False, trials=6)
    assert mended.continuation == 0
    assert mended.finished == again.finished
