"""What a recipe accepts, and that every refusal names field, value and remedy."""

import json
import math
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
import yaml

from vrgd_ray import ConfigError, GsnrBounds, Recipe
from vrgd_ray.config import check_batch_groups, check_value, first_line, nearest

VALID = {"optimizer": "vr_adamw", "batch_size": 64, "lr": 0.01}

ACCEPTED = [
    ("lr", 1e-12),
    ("lr", 3),
    ("epochs", 0.25),
    ("epochs", 30),
    ("num_groups", 2),
    ("num_groups", 64),
    ("weight_decay", 0.0),
    ("momentum", 0.0),
    ("momentum", 0.999),
    ("warmup_fraction", 0.0),
    ("warmup_fraction", 1.0),
    ("gsnr_lower", 0.0),
    ("gsnr_lower", 1.0),
    ("gsnr_upper", 5.0),
    ("gsnr_beta", 0.0),
    ("gsnr_control", "constant"),
    ("gsnr_control", "shuffled"),
    ("gsnr_control", None),
    ("clip_grad_norm", None),
    ("clip_grad_norm", 0.5),
    ("seed", 2**63 - 1),
]

REFUSED = [
    ("optimizer", 5, "must be a name, as 'adamw'"),
    ("optimizer", "", "must be a name, as 'adamw'"),
    ("schedule", None, "must be a name, as 'cosine'"),
    ("batch_size", 0, "at least 1"),
    ("batch_size", 64.0, "a whole number"),
    ("batch_size", True, "a whole number"),
    ("batch_size", "64", "a whole number"),
    ("num_groups", 1, "at least 2"),
    ("num_groups", None, "a whole number"),
    ("seed", -1, "at least 0"),
    ("seed", 2**63, "at most"),
    ("lr", 0.0, "above 0"),
    ("lr", -0.1, "above 0"),
    ("lr", math.nan, "finite"),
    ("lr", math.inf, "finite"),
    ("lr", True, "finite number"),
    ("lr", "1e-3", "YAML takes it for text; write a point, as in 1.0e-3"),
    ("lr", None, "finite number"),
    ("epochs", 0, "above 0"),
    ("epochs", math.inf, "finite"),
    ("weight_decay", -1e-9, "at least 0"),
    ("momentum", 1.0, "at least 0 and below 1"),
    ("momentum", -0.1, "at least 0 and below 1"),
    ("warmup_fraction", 1.01, "at least 0 and at most 1"),
    ("warmup_fraction", -0.01, "at least 0 and at most 1"),
    ("gsnr_beta", 1.0, "at least 0 and below 1"),
    ("gsnr_lower", -0.1, "at least 0"),
    ("gsnr_lower", math.nan, "finite"),
    ("gsnr_upper", 0.0, "above 0"),
    ("gsnr_upper", math.inf, "finite"),
    ("gsnr_control", "shuffle", "'constant' or 'shuffled'"),
    ("clip_grad_norm", 0.0, "above 0"),
    ("clip_grad_norm", "none", "finite number"),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_value_inside_the_range_is_accepted(name, value):
    assert getattr(Recipe(**VALID | {name: value}), name) == value


@pytest.mark.parametrize(("name", "value", "remedy"), REFUSED)
def test_a_value_outside_is_refused_naming_field_value_and_remedy(name, value, remedy):
    with pytest.raises(ConfigError, match=remedy) as caught:
        Recipe(**VALID | {name: value})
    assert str(caught.value).startswith(f"{name} = {value!r} ")


@pytest.mark.parametrize(("name", "value", "remedy"), REFUSED)
def test_a_single_value_is_checked_as_in_a_recipe(name, value, remedy):
    with pytest.raises(ConfigError, match=remedy):
        check_value(name, value)


def test_every_field_has_a_check():
    recipe = Recipe(**VALID)
    for field in fields(Recipe):
        check_value(field.name, getattr(recipe, field.name))
        with pytest.raises(ConfigError, match=field.name):
            check_value(field.name, object())


def test_a_batch_below_one_sample_a_group_is_refused_with_the_smallest_that_would_do():
    with pytest.raises(ConfigError, match=r"batch_size = 4 .* num_groups = 8 groups; use batch_size >= 8 or fewer"):
        Recipe(**VALID | {"batch_size": 4})


def test_a_batch_its_groups_do_not_divide_is_refused_with_its_neighbours():
    with pytest.raises(
        ConfigError, match="batch_size = 65 is not a multiple of num_groups = 8; the nearest that are: 64 and 72"
    ):
        check_batch_groups(65, 8)


@pytest.mark.parametrize(
    "build", [lambda: Recipe(**VALID, gsnr_lower=0.6, gsnr_upper=0.5), lambda: GsnrBounds(lower=0.6, upper=0.5)]
)
def test_crossed_bounds_are_refused(build):
    with pytest.raises(ConfigError, match=r"gsnr_lower = 0.6 is above gsnr_upper = 0.5; .* must not exceed"):
        build()


def test_bounds_are_off_only_at_one_and_one():
    assert GsnrBounds(lower=1.0, upper=1.0).off
    assert not GsnrBounds(lower=0.5, upper=0.5).off
    assert not GsnrBounds().off
    assert tuple(GsnrBounds(lower=0.2, upper=3.0)) == (0.2, 3.0)


def test_derived_values():
    recipe = Recipe(**VALID, num_groups=16, gsnr_lower=0.2, gsnr_upper=2.0)
    assert recipe.group_size == 4
    assert recipe.gsnr_bounds == GsnrBounds(lower=0.2, upper=2.0)


def test_a_recipe_survives_dict_json_and_yaml():
    recipe = Recipe(**VALID, epochs=2.5, warmup_fraction=0.1, gsnr_control="shuffled", clip_grad_norm=1e-5, seed=7)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert Recipe.from_dict(yaml.safe_load(yaml.safe_dump(recipe.to_dict()))) == recipe
    assert list(recipe.to_dict()) == [field.name for field in fields(Recipe)]


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 0.01 * np.sqrt(2), "epochs": np.float32(0.5), "weight_decay": np.float64(0)},
        {"batch_size": np.int64(64), "num_groups": np.arange(9)[8], "seed": np.uint8(3), "epochs": np.int32(2)},
        {"optimizer": np.str_("sgd"), "schedule": np.array(["cosine"])[0]},
        {"gsnr_lower": np.float64(0.2), "gsnr_upper": np.float64(0.5), "clip_grad_norm": np.float16(1)},
    ],
    ids=["fractions", "whole", "names", "bounds"],
)
def test_numbers_and_names_of_numpy_become_plain(values):
    for recipe in (Recipe(**VALID | values), Recipe(**VALID).with_values(**values), Recipe.from_dict(VALID | values)):
        assert yaml.safe_load(yaml.safe_dump(recipe.to_dict())) == recipe.to_dict()
        assert {name: getattr(recipe, name) for name in values} == values
        assert {type(value) for value in recipe.gsnr_bounds} == {float}
    for name, value in values.items():
        check_value(name, value)


def test_bounds_of_numpy_become_plain():
    assert [type(value) for value in GsnrBounds(lower=np.float64(0.2), upper=np.float32(1))] == [float, float]


def test_an_array_is_no_number():
    with pytest.raises(ConfigError, match="lr = array"):
        Recipe(**VALID | {"lr": np.array(0.1)})


def test_a_recipe_is_frozen_and_named_by_keyword_only():
    with pytest.raises(FrozenInstanceError):
        Recipe(**VALID).lr = 1.0
    with pytest.raises(TypeError):
        Recipe("adamw", 64, 0.01)


def test_with_values_checks_anew_and_leaves_the_original():
    recipe = Recipe(**VALID)
    assert recipe.with_values(lr=0.5).lr == 0.5
    assert recipe.lr == 0.01
    with pytest.raises(ConfigError, match="lr = -1 "):
        recipe.with_values(lr=-1)
    with pytest.raises(ConfigError, match="batch_size = 60 is not a multiple"):
        recipe.with_values(batch_size=60)


@pytest.mark.parametrize(
    ("name", "suggestion"), [("learning_rate", None), ("batchsize", "batch_size"), ("gsnr_bta", "gsnr_beta")]
)
def test_an_unknown_field_is_refused_with_the_nearest_name(name, suggestion):
    hint = f"did you mean '{suggestion}'\\? Valid" if suggestion else "valid"
    with pytest.raises(ConfigError, match=f"unknown recipe field '{name}': {hint}: .*weight_decay"):
        Recipe.from_dict(VALID | {name: 1})


def test_a_field_that_is_no_text_is_refused_too():
    with pytest.raises(ConfigError, match="unknown recipe field 3: valid"):
        Recipe.from_dict(VALID | {3: 1})


def test_missing_fields_are_all_named():
    with pytest.raises(ConfigError, match="the recipe lacks batch_size, lr; give"):
        Recipe.from_dict({"optimizer": "sgd"})


def test_nearest_lists_all_names_in_order():
    assert nearest("adamx", ["sgd", "adam"]) == "did you mean 'adam'? Valid: adam, sgd."
    assert nearest("zzz", ["sgd", "adam"]) == "valid: adam, sgd."


@pytest.mark.parametrize(
    ("error", "line"),
    [(OSError("no room.\nTraceback: more"), "no room"), (ValueError("  "), "ValueError"), (EOFError(), "EOFError")],
)
def test_an_error_is_said_in_one_line(error, line):
    assert first_line(error) == line
