"""What load_state_dict makes of states that were saved by something else: another order, type, layout or optimizer."""

import copy

import pytest
import torch
from random_moments import parameters, set_moments
from test_optimizer_contract import SHAPES, every, every_vr, run

from vrgd_ray import ConfigError
from vrgd_ray.optim import LAMB, LARS, VRLAMB, VRLARS, VRSGD, VRAdam, VRAdamW

FLOATS = (torch.float32, torch.float64)


def saved(kind, options, params, seeds=range(2)):
    """The state after some steps, and the values of the parameters then."""
    optimizer = kind(params, **options)
    values = run(optimizer, seeds)
    return copy.deepcopy(optimizer.state_dict()), values


@every
def test_a_state_of_another_order_is_refused_and_nothing_changed(kind, options, path):
    state, _ = saved(kind, options, parameters([(4,), (6, 5)]))
    optimizer = kind(parameters([(6, 5), (4,)]), **options, **path)
    run(optimizer, range(1))
    before = str(optimizer.state_dict())
    with pytest.raises(ConfigError, match=r"parameter 0 has shape \(4,\), the parameter itself \(6, 5\); .* order"):
        optimizer.load_state_dict(state)
    assert str(optimizer.state_dict()) == before


@every
@pytest.mark.parametrize(("first", "second"), [FLOATS, FLOATS[::-1]])
def test_a_state_of_another_precision_is_taken_in_the_parameters_own(kind, options, path, first, second):
    state, values = saved(kind, options, parameters(SHAPES, first))
    straight = kind([torch.nn.Parameter(value) for value in values], **options)
    straight.load_state_dict(copy.deepcopy(state))
    other = kind([torch.nn.Parameter(value.to(second)) for value in values], **options, **path)
    other.load_state_dict(state)
    for a, b in zip(run(straight, range(2, 4)), run(other, range(2, 4)), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-5)
    kept = [value for own in other.state.values() for name, value in own.items() if name != "step"]
    assert {value.dtype for value in kept} == {second}


@every
def test_a_state_of_another_memory_format_belongs_to_the_same_elements(kind, options, path):
    def made(values=None, memory_format=torch.contiguous_format):
        (value,) = values or [parameter.detach() for parameter in parameters([(3, 4, 5, 6)])]
        return [torch.nn.Parameter(value.clone(memory_format=memory_format))]

    state, values = saved(kind, options, made(memory_format=torch.channels_last))
    straight = kind(made(values), **options)
    straight.load_state_dict(saved(kind, options, made())[0])
    loaded = kind(made(values), **options, **path)
    loaded.load_state_dict(state)
    for a, b in zip(run(straight, range(2, 4)), run(loaded, range(2, 4)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@every_vr
def test_a_model_of_another_precision_since_the_last_step_is_never_written_past_its_memory(kind, options, path):
    params = parameters([(300, 20)], torch.float32)
    optimizer = kind(params, **options, **path)
    run(optimizer, range(1))
    params[0].data = params[0].data.double()
    set_moments(params, 1)
    try:
        optimizer.step()
    except RuntimeError:  # what torch's own Adam says
        return
    assert params[0].isfinite().all()


@pytest.mark.parametrize(
    ("kind", "base"),
    [(VRAdamW, torch.optim.AdamW), (VRAdam, torch.optim.Adam), (VRSGD, torch.optim.SGD), (VRLAMB, LAMB)],
)
def test_a_base_optimizers_state_leaves_the_scale_on(kind, base):
    state, values = saved(base, {"lr": 0.03}, parameters(SHAPES))
    params = [torch.nn.Parameter(value) for value in values]
    optimizer = kind(params, lr=0.01, gsnr_bounds=(0.2, 0.9), **({} if kind is VRSGD else {"betas": (0.8, 0.9, 0.7)}))
    optimizer.load_state_dict(state)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["gsnr_bounds"]) == (0.03, (0.2, 0.9))
    assert kind is VRSGD or group["betas"] == (0.9, 0.999, 0.7)
    for param in params:
        param.grad = torch.ones_like(param)
    with pytest.raises(RuntimeError, match="grad_var"):
        optimizer.step()
    run(optimizer, range(2, 4))
    assert 0.2 <= optimizer.mean_scale() <= 0.9


@pytest.mark.parametrize(("kind", "base"), [(VRLARS, LARS), (VRLAMB, LAMB)])
def test_a_vr_optimizers_state_leaves_its_base_without_a_scale(kind, base):
    state, values = saved(kind, {"lr": 0.03}, parameters(SHAPES))
    optimizer = base([torch.nn.Parameter(value) for value in values], lr=0.01)
    optimizer.load_state_dict(state)
    for param in optimizer.param_groups[0]["params"]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert optimizer.mean_scale() == 1.0
    assert optimizer.param_groups[0]["lr"] == 0.03


def test_a_state_without_betas_leaves_the_optimizers_own():
    optimizer = VRAdam(parameters(SHAPES), betas=(0.8, 0.9, 0.7))
    optimizer.load_state_dict(torch.optim.SGD(parameters(SHAPES), lr=0.3).state_dict())
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9, 0.7)
    assert optimizer.param_groups[0]["lr"] == 0.3


def test_a_saved_option_out_of_its_range_is_refused():
    state, _ = saved(VRSGD, {"lr": 0.1}, parameters(SHAPES))
    state["param_groups"][0]["momentum"] = 2.0
    optimizer = VRSGD(parameters(SHAPES), lr=0.1)
    with pytest.raises(ConfigError, match="momentum"):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["momentum"] == 0.0


@pytest.mark.parametrize(
    ("kind", "other", "foreign"),
    [(VRSGD, VRAdam, "exp_avg, exp_avg_sq, scale_avg, step"), (VRLARS, LAMB, "exp_avg,"), (VRAdamW, LARS, "momentum_")],
)
def test_a_state_of_another_kind_of_optimizer_is_refused_and_nothing_changed(kind, other, foreign):
    state, _ = saved(other, {"lr": 0.1}, parameters(SHAPES))
    optimizer = kind(parameters(SHAPES), lr=0.2)
    with pytest.raises(ConfigError, match=f"the saved state holds {foreign}.* which {kind.__name__} does not keep"):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.2
    run(optimizer, range(1))
