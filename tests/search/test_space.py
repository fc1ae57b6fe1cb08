"""Overrides from the command line, loading of spaces, and what is refused before a search starts."""

import sys
from types import SimpleNamespace

import pytest

from vrgd_ray import ConfigError, Recipe, SpaceContext
from vrgd_ray.search.space import DescribingTrial, Override, describe, load_space, parse_overrides, suggest, uses

REFERENCE = Recipe(optimizer="adamw", batch_size=32, lr=0.01)
VR = SpaceContext(batch_size=128, optimizer="vr_adamw", reference=REFERENCE)
BASE = SpaceContext(batch_size=128, optimizer="adamw", reference=REFERENCE)


def space_of(**values):
    """A space that suggests these values, whatever the trial."""
    return SimpleNamespace(suggest=lambda trial, context: dict(values))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("lr=0.1", Override(choices=(0.1,))),
        ("lr=1e-3", Override(choices=(0.001,))),
        ("num_groups=16", Override(choices=(16,))),
        ("schedule=linear", Override(choices=("linear",))),
        ("clip_grad_norm=none", Override(choices=(None,))),
        ("num_groups=8,16,32", Override(choices=(8, 16, 32))),
        ("schedule=cosine, linear", Override(choices=("cosine", "linear"))),
        ("clip_grad_norm=none,1.0", Override(choices=(None, 1.0))),
        ("lr=1e-4:1e-1", Override(low=1e-4, high=1e-1, log=True)),
        ("lr=0.1:0.9", Override(low=0.1, high=0.9)),
        ("warmup_fraction=0:0.2", Override(low=0.0, high=0.2)),
        ("gsnr_upper=1:5", Override(low=1.0, high=5.0)),
        ("num_groups=8:80", Override(low=8, high=80, log=True)),
    ],
)
def test_settings_are_read(setting, expected):
    (override,) = parse_overrides([setting]).values()
    assert override == expected
    assert [type(value) for value in (override.low, override.high, *override.choices)] == [
        type(value) for value in (expected.low, expected.high, *expected.choices)
    ]


def test_a_range_of_a_field_that_is_no_count_is_drawn_from_all_numbers():
    trial = DescribingTrial()
    assert parse_overrides(["gsnr_upper=1:2"])["gsnr_upper"].suggest("gsnr_upper", trial) == 1.5
    assert parse_overrides(["num_groups=8:11"])["num_groups"].suggest("num_groups", trial) == 9


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "--set 'lr' must be name=value, name=a,b,c or name=low:high"),
        ("lr=", "--set 'lr=' must be name=value"),
        ("learnig_rate=1", "unknown recipe field 'learnig_rate'"),
        ("weight_decy=1", "did you mean 'weight_decay'"),
        ("lr=-1", "lr = -1 must be a finite number, above 0"),
        ("lr=0.1,-1", "lr = -1 must be"),
        ("lr=0.1,", "lr = '' must be a finite number"),
        ("lr=nan", "lr = nan must be a finite number"),
        ("lr=fast", "lr = 'fast' must be a finite number"),
        ("weight_decay=none", "weight_decay = None must be a finite number"),
        ("num_groups=1,8", "num_groups = 1 must be a whole number of at least 2"),
        ("num_groups=8.5:16", "num_groups = 8.5 must be a whole number"),
        ("schedule=cosin", "unknown schedule 'cosin': did you mean 'cosine'"),
        ("lr=1e-1:1e-4", "'lr=1e-1:1e-4': a range is low:high with two numbers, low below high"),
        ("lr=0.1:0.1", "low below high"),
        ("lr=a:b", "low:high with two numbers"),
        ("lr=1:2:3", "low:high with two numbers"),
        ("lr=0:1", "lr = 0 must be a finite number, above 0"),
        ("lr=1:inf", "lr = inf must be a finite number"),
        ("schedule=1:2", "for a field that is a number"),
        ("batch_size=64", "--set batch_size is not searched: .* use its own flag"),
        ("optimizer=sgd", "--set optimizer is not searched"),
        ("seed=1", "--set seed is not searched"),
        ("epochs=3", "--set epochs is not searched"),
    ],
)
def test_what_cannot_be_used_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        parse_overrides([setting])


def test_every_field_may_be_set_where_nothing_is_searched():
    overrides = parse_overrides(["batch_size=65", "seed=3", "optimizer=sgd", "epochs=2"], every_field=True)
    assert [override.choices[0] for override in overrides.values()] == [65, 3, "sgd", 2]
    with pytest.raises(ConfigError, match="batch_size = 'big' must be a whole number"):
        parse_overrides(["batch_size=big"], every_field=True)


@pytest.mark.parametrize(
    ("override", "inside", "outside"),
    [
        (Override(choices=("cosine", "linear")), "linear", "constant"),
        (Override(low=0.1, high=0.5), 0.5, 0.51),
        (Override(low=0.1, high=0.5), 0.1, "cosine"),
        (Override(low=0.1, high=0.5), 0.2, None),
    ],
)
def test_an_override_knows_what_it_can_draw(override, inside, outside):
    assert override.contains(inside)
    assert not override.contains(outside)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (Override(choices=(8,)), "fixed 8"),
        (Override(choices=(8, 16)), "one of 8, 16"),
        (Override(low=1e-4, high=0.1, log=True), "0.0001 to 0.1 on a log scale"),
        (Override(low=0.0, high=0.2), "0 to 0.2"),
    ],
)
def test_an_override_in_words(override, words):
    assert str(override) == words


def test_the_context_knows_ratio_and_kind():
    assert VR.batch_ratio == 4.0
    assert VR.is_vr
    assert not BASE.is_vr


def test_fields_of_no_optimizer_concern_all_and_others_only_those_that_use_them():
    assert uses("adamw", "num_groups")
    assert uses("adamw", "lr")
    assert not uses("adamw", "momentum")
    assert not uses("vr_sgd", "gsnr_beta")
    assert uses("vr_lamb", "gsnr_beta")


def test_a_space_that_suggests_what_the_optimizer_ignores_is_refused():
    with pytest.raises(ConfigError, match="the search space suggests momentum, which adamw ignores"):
        suggest(space_of(lr=0.1, momentum=0.5), DescribingTrial(), BASE, {})


def test_a_space_that_suggests_an_unknown_field_is_refused():
    with pytest.raises(ConfigError, match="unknown recipe field 'learning_rate'"):
        suggest(space_of(learning_rate=0.1), DescribingTrial(), BASE, {})


def test_what_only_an_override_names_is_added_where_it_is_used():
    overrides = parse_overrides(["num_groups=16", "momentum=0.5"])
    assert suggest(space_of(lr=0.1), DescribingTrial(), BASE, overrides) == {"lr": 0.1, "num_groups": 16}


def test_values_that_a_space_does_not_draw_are_described_as_fixed():
    assert describe(space_of(lr=0.1), BASE, {}) == {"lr": Override(choices=(0.1,))}


@pytest.mark.parametrize(
    "settings", [["gsnr_lower=2"], ["gsnr_upper=0.1"], ["gsnr_lower=0.1:2", "gsnr_upper=1:5"], ["gsnr_lower=0.1,1.5"]]
)
def test_bounds_that_could_cross_are_refused_for_the_vr_arm(settings):
    space = load_space("vr_adamw")
    with pytest.raises(ConfigError, match=r"gsnr_lower up to .* and gsnr_upper from .* can cross"):
        describe(space, VR, parse_overrides(settings))
    assert "gsnr_lower" not in describe(space, BASE, parse_overrides(settings))


def test_bounds_that_touch_are_accepted():
    described = describe(load_space("vr_adamw"), VR, parse_overrides(["gsnr_lower=1", "gsnr_upper=1"]))
    assert (described["gsnr_lower"], described["gsnr_upper"]) == (Override(choices=(1,)), Override(choices=(1,)))


def test_twins_share_one_space_and_a_pipeline_may_bring_its_own():
    assert load_space("vr_lamb") is load_space("lamb")
    own = space_of(lr=1.0)
    assert load_space("vr_lamb", SimpleNamespace(search_space=own)) is own
    assert load_space("vr_lamb", SimpleNamespace()) is load_space("lamb")


def test_a_space_without_suggest_is_refused():
    with pytest.raises(ConfigError, match=r"lacks suggest\(trial, context\)"):
        load_space("sgd", SimpleNamespace(search_space=SimpleNamespace()))


def test_an_unknown_optimizer_has_no_space():
    with pytest.raises(ConfigError, match="unknown optimizer 'adamv': did you mean"):
        load_space("adamv")


def test_a_missing_space_is_told_from_one_that_misses_a_package(tmp_path, monkeypatch):
    import search_spaces

    monkeypatch.setitem(sys.modules, "search_spaces.lamb", None)
    with pytest.raises(ConfigError, match=r"no search space for optimizer 'vr_lamb': search_spaces\.lamb is missing"):
        load_space("vr_lamb")
    monkeypatch.delitem(sys.modules, "search_spaces.lamb")
    monkeypatch.setattr(search_spaces, "__path__", [str(tmp_path)])
    (tmp_path / "lamb.py").write_text("import package_nobody_has\n")
    with pytest.raises(ModuleNotFoundError, match="package_nobody_has"):
        load_space("vr_lamb")
