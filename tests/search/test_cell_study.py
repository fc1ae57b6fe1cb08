"""One cell's Optuna study: what is tried first, what results it waits for, and that it repeats itself."""

import math

import pytest

from vrgd_ray import Recipe
from vrgd_ray.search.cell_study import CellStudy
from vrgd_ray.search.space import SpaceContext, load_space, parse_overrides
from vrgd_ray.search.warm_start import first_guesses

REFERENCE = Recipe(optimizer="adamw", batch_size=32, lr=1e-3, weight_decay=0.0, schedule="polynomial")


def study(optimizer="adamw", batch_size=128, settings=(), context=None, **changes):
    context = context or SpaceContext(batch_size=batch_size, optimizer=optimizer, reference=REFERENCE)
    values = {"mode": "max", "num_trials": 8, "width": 1, "seed": 0, "first": first_guesses(context)}
    return CellStudy(load_space(optimizer), context, overrides=parse_overrides(settings), **{**values, **changes})


def finish(cell, score=lambda values: values["lr"]):
    while (values := cell.ask()) is not None:
        cell.tell(len(cell.suggestions) - 1, score(values))
    return cell


def test_first_trials_are_the_reference_with_scaled_learning_rates_to_the_letter():
    """Also where the space does not reach: no weight decay."""
    cell = finish(study())
    for values, factor in zip(cell.suggestions[:2], (2.0, 4.0), strict=True):
        assert values["lr"] == pytest.approx(factor * REFERENCE.lr)
        assert (values["weight_decay"], values["schedule"]) == (0.0, "polynomial")


def test_the_reference_cell_tries_the_reference_recipe_itself_first():
    first = study(batch_size=32).ask()
    assert {name: first[name] for name in ("lr", "weight_decay", "schedule", "warmup_fraction")} == {
        "lr": REFERENCE.lr,
        "weight_decay": 0.0,
        "schedule": "polynomial",
        "warmup_fraction": 0.0,
    }


def test_overrides_win_over_the_first_guess():
    cell = finish(study(settings=["lr=0.5", "schedule=cosine,linear"]))
    assert {values["lr"] for values in cell.suggestions} == {0.5}
    assert {values["schedule"] for values in cell.suggestions} <= {"cosine", "linear"}


@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.02, "schedule": "cosine"}])
def test_the_sampler_is_told_what_was_trained_and_nothing_of_what_it_has_no_place_for(changes):
    """TPE would credit a score to a weight decay that nobody trained."""
    context = SpaceContext(batch_size=128, optimizer="vr_adamw", reference=REFERENCE.with_values(**changes))
    cell = finish(study("vr_adamw", context=context, first=first_guesses(context), num_trials=6))
    told = [trial.params for trial in cell._study.trials]
    for trained, known in zip(cell.suggestions, told, strict=True):
        assert known == {name: trained[name] for name in known}
    searched = set(told[-1])
    assert {"lr", "schedule", "weight_decay"} <= searched
    assert [searched - set(known) for known in told[:2]] == [set() if changes else {"weight_decay"}] * 2


class Branching:
    """A space whose second range hangs on what was drawn before, so that no description lists it."""

    def suggest(self, trial, context):
        values = {"schedule": trial.suggest_categorical("schedule", ["cosine", "polynomial"])}
        if values["schedule"] == "polynomial":
            values["warmup_fraction"] = trial.suggest_float("warmup_fraction", 0.0, 0.2)
            values["num_groups"] = trial.suggest_int("num_groups", 16, 32)
        return values


def test_a_guess_is_known_to_the_sampler_in_every_branch_of_a_space():
    context = SpaceContext(batch_size=32, optimizer="adamw", reference=REFERENCE.with_values(warmup_fraction=0.1))
    cell = CellStudy(Branching(), context, mode="max", num_trials=1, width=1, seed=0, first=first_guesses(context))
    assert cell.ask()["num_groups"] == 8
    assert cell._study.trials[0].params == {"schedule": "polynomial", "warmup_fraction": 0.1}


@pytest.mark.parametrize("width", [1, 2, 4])
def test_waits_for_the_results_that_the_width_demands(width):
    cell = study(width=width)
    asked = [cell.ask() for _ in range(width)]
    assert None not in asked
    assert cell.ask() is None
    cell.tell(width - 1, 0.5)  # a later one back first changes nothing when earlier ones are still out
    assert (cell.ask() is None) == (width > 1)


def test_suggestions_use_only_results_the_width_allows():
    """Results that came early do not leak into a suggestion that another timing would have made without them."""

    def suggestions(early):
        cell = study(width=3, num_trials=8)
        for index in range(8):
            if early:
                for done in range(index):
                    cell.tell(done, float(done % 3))
            else:
                for done in range(max(0, index - 2)):
                    cell.tell(done, float(done % 3))
            cell.ask()
        return cell.suggestions

    assert suggestions(early=True) == suggestions(early=False)


def test_same_seed_same_suggestions_other_seed_others():
    assert finish(study()).suggestions == finish(study()).suggestions
    assert finish(study()).suggestions != finish(study(seed=1)).suggestions


def test_cells_do_not_share_their_random_draws():
    first, second = finish(study(batch_size=128)), finish(study(batch_size=256))
    assert first.suggestions[3]["warmup_fraction"] != second.suggestions[3]["warmup_fraction"]


@pytest.mark.parametrize(("mode", "expected"), [("max", 3), ("min", 1)])
def test_best_is_the_earliest_of_the_best(mode, expected):
    cell = study(mode=mode, num_trials=5, width=5)
    for index, value in enumerate([0.5, 0.1, None, 0.9, 0.9]):
        cell.ask()
        cell.tell(index, value)
    assert cell.best == (expected, 0.9 if mode == "max" else 0.1)
    assert cell.diverged == 1
    assert cell.finished


def test_all_diverged_has_no_best():
    cell = finish(study(num_trials=6), lambda values: None)
    assert cell.finished
    assert cell.best is None


def test_learns_from_its_results():
    """Later trials lie nearer the optimum than draws that ignore results: 0.95 on average over the space's range."""

    def score(values):
        return -abs(math.log(values["lr"] / 4e-3))

    low, high, best = math.log(4e-4), math.log(1e-2), math.log(4e-3)
    blind = ((best - low) ** 2 + (high - best) ** 2) / (2 * (high - low))
    late = []
    for seed in range(5):
        cell = finish(study(num_trials=40, seed=seed, first=()), score)
        late += [-score(values) for values in cell.suggestions[20:]]
    assert sum(late) / len(late) < 0.6 * blind


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_pruned_trial_counts_and_is_never_the_best(mode):
    cell = study(mode=mode, num_trials=6, width=1)
    for index in range(6):
        cell.ask()
        if index in (2, 4):
            cell.tell_pruned(index, samples=100, value=9.9 if mode == "max" else -9.9)
        else:
            cell.tell(index, float(index))
    assert cell.finished
    assert cell.best[0] == (5 if mode == "max" else 0)
    assert (cell.diverged, len(cell.pruned)) == (0, 2)
    told = cell._study.trials[2]
    assert (told.state.name, told.intermediate_values) == ("PRUNED", {100: 9.9 if mode == "max" else -9.9})
    assert cell._study.best_trial.number != 2
