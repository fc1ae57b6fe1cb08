"""What every search space of the package must keep, for every optimizer of the registry."""

import optuna
import pytest

from vrgd_ray import Recipe, SpaceContext
from vrgd_ray.optim.registry import base_of, hyperparameters, is_vr, names
from vrgd_ray.search.space import describe, load_space, parse_overrides, suggest

SCHEDULE_FIELDS = {"schedule", "warmup_fraction"}
BATCHES = (32, 1024)
DRAWS = 20


def context_of(optimizer, batch_size=256, **reference):
    values = {"batch_size": 32, "lr": 3e-3, "weight_decay": 0.01, "epochs": 30} | reference
    return SpaceContext(
        batch_size=batch_size, optimizer=optimizer, reference=Recipe(optimizer=base_of(optimizer), **values)
    )


def draws(optimizer, context, settings=(), seed=0):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    overrides = parse_overrides(settings)
    return [suggest(load_space(optimizer), study.ask(), context, overrides) for _ in range(DRAWS)]


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


pytestmark = pytest.mark.parametrize("optimizer", names())


@pytest.mark.parametrize("batch_size", BATCHES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_every_draw_makes_a_recipe(optimizer, batch_size, weight_decay):
    context = context_of(optimizer, batch_size, weight_decay=weight_decay)
    for values in draws(optimizer, context):
        recipe = context.reference.with_values(optimizer=optimizer, batch_size=batch_size, **values)
        assert recipe.weight_decay > 0


def test_only_fields_the_optimizer_uses_are_searched(optimizer):
    for values in draws(optimizer, context_of(optimizer)):
        assert set(values) <= {*hyperparameters(optimizer), *SCHEDULE_FIELDS}
        assert {"lr", "weight_decay"} | SCHEDULE_FIELDS <= set(values)


def test_only_vr_twins_search_the_scale_and_all_of_it(optimizer):
    searched = {name for name in draws(optimizer, context_of(optimizer))[0] if name.startswith("gsnr_")}
    expected = {name for name in hyperparameters(optimizer) if name.startswith("gsnr_")} - {"gsnr_control"}
    assert searched == expected
    assert bool(searched) == is_vr(optimizer)


def test_twins_search_the_same_ranges_but_for_the_scale(optimizer):
    own, base = (describe(load_space(name), context_of(name), {}) for name in (optimizer, base_of(optimizer)))
    assert {name: own[name] for name in own if not name.startswith("gsnr_")} == base


def test_the_same_seed_draws_the_same_values(optimizer):
    context = context_of(optimizer)
    assert draws(optimizer, context) == draws(optimizer, context)
    assert draws(optimizer, context) != draws(optimizer, context, seed=1)


def test_the_learning_rates_of_both_scaling_rules_are_inside(optimizer):
    for batch_size in BATCHES:
        context = context_of(optimizer, batch_size)
        rates = describe(load_space(optimizer), context, {})["lr"]
        assert rates.log
        assert rates.contains(context.reference.lr * context.batch_ratio**0.5)
        assert rates.contains(context.reference.lr * context.batch_ratio)


def test_the_schedule_of_the_reference_is_searched_too(optimizer):
    for schedule in ("cosine", "polynomial"):
        searched = describe(load_space(optimizer), context_of(optimizer, schedule=schedule), {})["schedule"]
        assert searched.choices == tuple(dict.fromkeys(("cosine", "linear", "constant", schedule)))


def test_overrides_win(optimizer):
    settings = ["lr=0.125", "weight_decay=1e-3:2e-3", "schedule=linear,polynomial", "num_groups=16,32"]
    for values in draws(optimizer, context_of(optimizer), settings):
        assert values["lr"] == 0.125
        assert 1e-3 <= values["weight_decay"] <= 2e-3
        assert values["schedule"] in ("linear", "polynomial")
        assert values["num_groups"] in (16, 32)


def test_an_override_of_the_scale_concerns_vr_twins_alone(optimizer):
    values = draws(optimizer, context_of(optimizer), ["gsnr_control=shuffled", "gsnr_lower=0.25"])[0]
    assert values.get("gsnr_lower") == (0.25 if is_vr(optimizer) else None)
    assert values.get("gsnr_control") == ("shuffled" if is_vr(optimizer) else None)


@pytest.mark.parametrize("settings", [(), ("lr=0.1", "num_groups=16,32", "momentum=0.5:0.99", "clip_grad_norm=1.0")])
def test_describe_lists_exactly_what_is_drawn_and_where(optimizer, settings):
    context = context_of(optimizer)
    described = describe(load_space(optimizer), context, parse_overrides(settings))
    for values in draws(optimizer, context, settings):
        assert list(values) == list(described)
        assert all(described[name].contains(value) for name, value in values.items())
