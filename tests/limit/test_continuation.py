"""Going on with a search under a larger plan: what is allowed, what is trained again, and what it costs."""

import pytest
from simulation import plan, search, train

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.continuation import check_continues, total_alpha
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.outcome import build_outcome
from vrgd_ray.search.job import Job

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
