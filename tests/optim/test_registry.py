"""The registry: names, twins, hyper-parameters, and errors instead of silently dropped options."""

from dataclasses import fields

import pytest
import torch
from random_moments import parameters

from vrgd_ray import ConfigError, Recipe
from vrgd_ray.optim import VRLAMB, VRAdamW, create_optimizer, registry

OF_A_RECIPE = {
    "lr": 0.1,
    "momentum": 0.8,
    "weight_decay": 0.01,
    "gsnr_lower": 0.2,
    "gsnr_upper": 1.5,
    "gsnr_beta": 0.7,
    "gsnr_control": "constant",
}


@pytest.mark.parametrize("name", registry.names())
def test_every_optimizer_is_built_from_the_hyperparameters_it_names(name):
    values = {key: OF_A_RECIPE[key] for key in registry.hyperparameters(name)}
    group = create_optimizer(name, parameters([(2,)]), **values).param_groups[0]
    assert group["lr"] == 0.1
    assert group["weight_decay"] == 0.01
    if "momentum" in values:
        assert group["momentum"] == 0.8
    if registry.is_vr(name):
        assert tuple(group["gsnr_bounds"]) == (0.2, 1.5)
        assert group["gsnr_control"] == "constant"
    if "gsnr_beta" in values:
        assert group["betas"] == (0.9, 0.999, 0.7)


@pytest.mark.parametrize("name", registry.names())
def test_every_name_has_a_twin_a_description_and_known_hyperparameters(name):
    assert registry.twin(registry.twin(name)) == name
    assert registry.is_vr(name) != registry.is_vr(registry.twin(name))
    assert registry.base_of(name) == registry.base_of(registry.twin(name))
    assert registry.description(name)
    assert set(registry.hyperparameters(registry.base_of(name))) <= set(registry.hyperparameters(name))
    assert set(registry.hyperparameters(name)) <= {field.name for field in fields(Recipe)}


@pytest.mark.parametrize("name", registry.names())
def test_every_other_hyperparameter_is_refused(name):
    for key in set(OF_A_RECIPE) - set(registry.hyperparameters(name)):
        with pytest.raises(ConfigError, match=key):
            create_optimizer(name, parameters([(2,)]), lr=0.1, **{key: OF_A_RECIPE[key]})


def test_defaults_are_the_same_for_all_optimizers():
    for name in registry.names():
        group = create_optimizer(name, parameters([(2,)]), lr=0.1).param_groups[0]
        assert group["weight_decay"] == 0.0
        assert group.get("momentum", 0.9) == 0.9


def test_options_of_the_class_pass_through():
    assert create_optimizer("sgd", parameters([(2,)]), lr=0.1, nesterov=True).param_groups[0]["nesterov"]
    optimizer = create_optimizer("vr_lamb", parameters([(2,)]), lr=0.1, gsnr_bounds=(0.0, 2.0), eps=1e-3)
    assert isinstance(optimizer, VRLAMB)
    assert (optimizer.defaults["gsnr_bounds"], optimizer.defaults["eps"]) == ((0.0, 2.0), 1e-3)
    betas = create_optimizer("vr_adamw", parameters([(2,)]), lr=0.1, betas=(0.8, 0.9, 0.5)).defaults["betas"]
    assert betas == (0.8, 0.9, 0.5)


def test_one_bound_alone_keeps_the_other():
    optimizer = create_optimizer("vr_adamw", parameters([(2,)]), lr=0.1, gsnr_upper=2.0)
    assert isinstance(optimizer, VRAdamW)
    assert optimizer.defaults["gsnr_bounds"] == (0.1, 2.0)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'vr_adamw'"):
        create_optimizer("vradamw", parameters([(2,)]), lr=0.1)
    with pytest.raises(ConfigError, match="did you mean 'weight_decay'"):
        create_optimizer("adamw", parameters([(2,)]), lr=0.1, weight_decy=0.1)
    with pytest.raises(ConfigError, match="vr_sgd"):
        registry.twin("adagrad")


def test_base_optimizers_are_torch_s():
    kinds = {name: type(create_optimizer(name, parameters([(2,)]), lr=0.1)) for name in ("sgd", "adam", "adamw")}
    assert kinds == {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
