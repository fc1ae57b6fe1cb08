"""What every optimizer promises as a torch optimizer: groups, state, errors that change nothing, statistics."""

import copy
import io
import math
import subprocess
import sys

import pytest
import torch
from random_moments import parameters, set_moments

from vrgd_ray import ConfigError, GsnrBounds
from vrgd_ray.optim import LAMB, LARS, VRLAMB, VRLARS, VRSGD, VRAdam, VRAdamW, gsnr_scale, parameter_groups
from vrgd_ray.optim.statistics import scale_series

VR = [
    (VRSGD, {"lr": 0.1, "momentum": 0.9}),
    (VRAdam, {"lr": 0.01}),
    (VRAdamW, {"lr": 0.01}),
    (VRLARS, {"lr": 0.1}),
    (VRLAMB, {"lr": 0.01}),
]
ALL = [*VR, (LARS, {"lr": 0.1}), (LAMB, {"lr": 0.01})]
SHAPES = [(5, 4), (4,), (3, 3)]
every = pytest.mark.parametrize(("kind", "options"), ALL, ids=lambda value: getattr(value, "__name__", ""))
every_vr = pytest.mark.parametrize(("kind", "options"), VR, ids=lambda value: getattr(value, "__name__", ""))


def run(optimizer, seeds):
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for seed in seeds:
        set_moments(params, seed)
        optimizer.step()
    return [param.detach().clone() for param in params]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@every
def test_options_of_a_group_are_those_of_an_optimizer_of_its_own(kind, options, path):
    own = {"lr": 0.02, "weight_decay": 0.3, "maximize": True}
    if issubclass(kind, tuple(k for k, _ in VR)):
        own["gsnr_bounds"] = (0.3, 0.8)
    first, second = parameters(SHAPES, seed=1), parameters(SHAPES, seed=2)
    together = kind([{"params": first}, {"params": second, **own}], **options, **path)
    apart = (
        kind(parameters(SHAPES, seed=1), **options, **path),
        kind(parameters(SHAPES, seed=2), **(options | own), **path),
    )
    for seed in range(3):
        set_moments(first, seed)
        set_moments(second, seed)
        together.step()
    for params, optimizer in zip((first, second), apart, strict=True):
        for a, b in zip(params, run(optimizer, range(3)), strict=True):
            torch.testing.assert_close(a.detach(), b, rtol=1e-12, atol=1e-12)


@every
def test_added_group_starts_anew(kind, options):
    optimizer = kind(parameters([(4,)], seed=1), **options)
    run(optimizer, range(2))
    late = parameters([(6,)], seed=2)
    optimizer.add_param_group({"params": late, "weight_decay": 0.5})
    fresh = kind(parameters([(6,)], seed=2), **options, weight_decay=0.5)
    for param in (optimizer.param_groups[0]["params"][0], *late):
        param.grad = None
    for seed in range(3):
        set_moments(late, seed)
        optimizer.step()
    assert equal([late[0].detach()], run(fresh, range(3)))


@every
def test_state_survives_a_round_trip(kind, options):
    straight = run(kind(parameters(SHAPES), **options), range(6))
    first = kind(parameters(SHAPES), **options)
    values = run(first, range(3))
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second = kind([torch.nn.Parameter(value) for value in values], **options)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    assert equal(straight, run(second, range(3, 6)))


def test_state_survives_a_round_trip_into_a_fresh_process(tmp_path):
    optimizer = VRAdamW(parameters(SHAPES), gsnr_control="shuffled", gsnr_seed=3)
    values = run(optimizer, range(2))
    torch.save((values, optimizer.state_dict()), tmp_path / "state.pt")
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]);"
        "from random_moments import set_moments; from vrgd_ray.optim import VRAdamW;"
        "values, state = torch.load(sys.argv[2] + '/state.pt', weights_only=True);"
        "params = [torch.nn.Parameter(v) for v in values]; optimizer = VRAdamW(params);"
        "optimizer.load_state_dict(state); set_moments(params, 2); optimizer.step();"
        "torch.save([p.detach() for p in params], sys.argv[2] + '/result.pt')"
    )
    here = __file__.rsplit("/", 1)[0]
    subprocess.run([sys.executable, "-c", script, here, str(tmp_path)], check=True)
    assert equal(run(optimizer, [2]), torch.load(tmp_path / "result.pt", weights_only=True))


@every_vr
def test_float32_state_of_bfloat16_parameters_is_restored_without_rounding(kind, options):
    optimizer = kind(parameters(SHAPES, torch.bfloat16), **options)
    values = run(optimizer, range(3))
    second = kind([torch.nn.Parameter(value) for value in values], **options)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert equal(run(optimizer, range(3, 6)), run(second, range(3, 6)))


@every
def test_frozen_and_unused_parameters_are_skipped(kind, options, path):
    params = parameters(SHAPES)
    optimizer = kind(params, **options, **path)
    set_moments(params, 0)
    params[1].grad = None
    before = params[1].detach().clone()
    optimizer.step()
    assert torch.equal(params[1], before)
    assert not optimizer.state[params[1]]


def test_parameters_that_join_later_count_their_own_steps(path):
    params = parameters([(4,), (4,)])
    optimizer = VRAdamW(params, **path)
    set_moments(params[:1], 0)
    optimizer.step()
    params[1].data = params[0].detach().clone()
    late = VRAdamW([torch.nn.Parameter(params[1].detach().clone())], **path)
    set_moments(params, 1)
    late.param_groups[0]["params"][0].grad = params[1].grad.clone()
    late.param_groups[0]["params"][0].grad_var = params[1].grad_var.clone()
    optimizer.step()
    late.step()
    torch.testing.assert_close(params[1], late.param_groups[0]["params"][0], rtol=1e-12, atol=0)


@every
def test_scheduler_and_closure(kind, options):
    params = parameters(SHAPES)
    optimizer = kind(params, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def closure():
        assert torch.is_grad_enabled()
        set_moments(params, 0)
        return 1.25

    assert optimizer.step(closure) == 1.25
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(options["lr"] / 2)


@every_vr
def test_switching_the_scale_on_midway_continues_from_no_scale(kind, options, path):
    params = parameters(SHAPES)
    optimizer = kind(params, **options, gsnr_bounds=(1, 1), **path)
    run(optimizer, range(3))
    optimizer.param_groups[0]["gsnr_bounds"] = (0.1, 1.0)
    assert all(torch.isfinite(value).all() for value in run(optimizer, range(3, 5)))


@every_vr
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: delattr(p, "grad_var"), "with moments.micro_batch"),
        (lambda p: setattr(p.grad_var, "consumed", True), "earlier step"),
        (lambda p: setattr(p, "grad_var", p.grad_var[:1]), "parameter's shape"),
        (lambda p: setattr(p, "grad_var", p.grad_var.bfloat16()), "float32 or float64"),
        (lambda p: setattr(p, "grad", p.grad.to_sparse()), "sparse"),
    ],
)
def test_unusable_moments_change_nothing(kind, options, spoil, message):
    params = parameters(SHAPES)
    optimizer = kind([{"params": params[:1]}, {"params": params[1:]}], **options)
    run(optimizer, range(1))
    set_moments(params, 1)
    spoil(params[-1])
    before, state = [param.detach().clone() for param in params], copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
    assert equal(before, [param.detach() for param in params])
    assert str(state) == str(optimizer.state_dict())


@every_vr
def test_second_step_on_the_same_moments_is_refused_and_the_variance_stays_readable(kind, options):
    params = parameters(SHAPES)
    optimizer = kind(params, **options)
    set_moments(params, 0)
    variance = params[0].grad_var.clone()
    optimizer.step()
    assert torch.equal(params[0].grad_var, variance)
    with pytest.raises(RuntimeError, match="earlier step"):
        optimizer.step()


@every
def test_complex_parameters_are_refused(kind, options):
    param = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    param.grad, param.grad_var = torch.ones_like(param), torch.ones(2)
    with pytest.raises(RuntimeError, match="real"):
        kind([param], **options).step()


@every
@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"lr": math.nan}, {"weight_decay": -0.1}, {"weight_decay": "0"}])
def test_options_out_of_range_name_themselves(kind, options, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        kind(parameters(SHAPES), **(options | wrong))


@pytest.mark.parametrize("bounds", [(0.5, 0.1), (-0.1, 1.0), (0.0, math.inf), (0.1,), 0.1])
def test_bounds_out_of_order_are_refused(bounds):
    with pytest.raises(ConfigError, match="gsnr"):
        VRSGD(parameters(SHAPES), lr=0.1, gsnr_bounds=bounds)


def test_wrong_options_of_one_kind():
    for kind, wrong in [
        (VRSGD, {"lr": 0.1, "nesterov": True}),
        (VRSGD, {"lr": 0.1, "momentum": 1.0}),
        (VRAdam, {"betas": (0.9, 0.999)}),
        (VRAdam, {"betas": (0.9, 0.999, 1.0)}),
        (VRAdamW, {"gsnr_control": "random"}),
        (VRLARS, {"lr": 0.1, "trust_coefficient": 0.0}),
        (VRLAMB, {"lr": 0.1, "eps": -1.0}),
    ]:
        with pytest.raises(ConfigError):
            kind(parameters(SHAPES), **wrong)


def test_refused_group_is_not_added():
    optimizer = VRSGD(parameters(SHAPES), lr=0.1)
    with pytest.raises(ConfigError):
        optimizer.add_param_group({"params": parameters([(2,)]), "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_bounds_may_be_the_dataclass():
    first = run(VRAdam(parameters(SHAPES), gsnr_bounds=GsnrBounds(lower=0.2, upper=0.9)), range(2))
    assert equal(first, run(VRAdam(parameters(SHAPES), gsnr_bounds=(0.2, 0.9)), range(2)))


def test_constant_control_multiplies_the_gradient_by_the_mean_scale():
    params = parameters(SHAPES)
    set_moments(params, 0)
    means = [gsnr_scale(param.grad, param.grad_var).mean() for param in params]
    expected = [p.detach() - 0.1 * s * p.grad for p, s in zip(params, means, strict=True)]
    VRSGD(params, lr=0.1, gsnr_control="constant").step()
    for param, value in zip(params, expected, strict=True):
        torch.testing.assert_close(param.detach(), value)


def test_shuffled_control_depends_on_seed_and_step_and_is_resumed():
    def optimizer(seed=0):
        return VRSGD(parameters(SHAPES), lr=0.1, gsnr_control="shuffled", gsnr_seed=seed)

    assert equal(run(optimizer(), range(3)), run(optimizer(), range(3)))
    assert not equal(run(optimizer(), range(1)), run(optimizer(seed=1), range(1)))
    first = optimizer()
    values = run(first, range(2))
    second = VRSGD([torch.nn.Parameter(value) for value in values], lr=0.1)
    second.load_state_dict(first.state_dict())
    assert equal(run(first, [2]), run(second, [2]))


@every_vr
def test_statistics_of_the_last_step(kind, options, path):
    params = parameters(SHAPES)
    optimizer = kind([{"params": params[:2]}, {"params": params[2:], "gsnr_bounds": (1, 1)}], **options, **path)
    set_moments(params, 0)
    scales = [gsnr_scale(p.grad, p.grad_var) for p in params[:2]] + [torch.ones(3, 3)]
    optimizer.step()
    flat = torch.cat([scale.flatten().double() for scale in scales])
    mean = torch.cat([param.grad.flatten() for param in params])
    assert optimizer.mean_scale() == pytest.approx(flat.mean().item())
    assert optimizer.step_ratio() == pytest.approx(((flat * mean).norm() / mean.norm()).item())
    layers = optimizer.layer_scales()
    assert [layer.param is param for layer, param in zip(layers, params, strict=True)] == [True] * 3
    assert [layer.mean_scale for layer in layers] == pytest.approx([scale.mean().item() for scale in scales])
    assert layers[2].step_ratio == 1.0
    series = scale_series(layers)
    assert (series["mean_scale"], series["step_ratio"]) == (optimizer.mean_scale(), optimizer.step_ratio())
    middle = sorted(layer.mean_scale for layer in layers)[1]
    assert series["scale_q50"] == pytest.approx(middle)
    assert series["scale_q10"] < middle < series["scale_q90"]


def test_statistics_leave_out_a_parameter_without_elements(path):
    params = parameters([(3, 3), (0,)])
    optimizer = VRAdamW(params, **path)
    set_moments(params, 0)
    optimizer.step()
    assert optimizer.mean_scale() == optimizer.layer_scales()[0].mean_scale
    assert len(optimizer.layer_scales()) == 1


def test_statistics_without_a_step_say_when_to_read_them():
    params = parameters(SHAPES)
    optimizer = VRSGD(params, lr=0.1)
    with pytest.raises(RuntimeError, match="zero_grad"):
        optimizer.mean_scale()
    set_moments(params, 0)
    with pytest.raises(RuntimeError, match="after step"):
        optimizer.step_ratio()


def test_parameter_groups_split_matrices_from_the_rest():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2, bias=False))
    model[2].weight.requires_grad_(False)
    matrices, rest = parameter_groups(model, weight_decay=0.1)
    assert [tuple(p.shape) for p in matrices["params"]] == [(3, 4)]
    assert len(rest["params"]) == 3
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert (matrices["trust_ratio"], rest["trust_ratio"]) == (True, False)


@pytest.mark.parametrize(("kind", "base"), [(VRLAMB, VRAdamW), (VRLARS, VRSGD)])
def test_without_trust_ratio_remains_the_inner_optimizer(kind, base, path):
    same = {"lr": 0.01, "weight_decay": 0.0, **path} | ({"eps": 1e-8} if base is VRAdamW else {"momentum": 0.9})
    first = run(kind(parameters(SHAPES), trust_ratio=False, **same), range(3))
    for a, b in zip(first, run(base(parameters(SHAPES), **same), range(3)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [LAMB, LARS])
def test_zero_weights_and_zero_gradients_have_factor_one(kind, path):
    params = parameters([(3,), (3,)])
    params[0].data.zero_()
    optimizer = kind(params, lr=0.1, weight_decay=0.0, **path)
    params[0].grad, params[1].grad = torch.ones(3).double(), torch.zeros(3).double()
    before = params[1].detach().clone()
    optimizer.step()
    torch.testing.assert_close(params[0].detach(), torch.full((3,), -0.1).double(), rtol=1e-5, atol=0)
    assert torch.equal(params[1], before)


@every_vr
@pytest.mark.gpu
def test_cuda_equals_cpu(kind, options):
    shapes = [(300, 40), (5,), (7, 7), (70_000,)]
    expected = run(kind(parameters(shapes, torch.float32), **options, foreach=False), range(3))
    params = [torch.nn.Parameter(param.detach().cuda()) for param in parameters(shapes, torch.float32)]
    optimizer = kind(params, **options)
    source = parameters(shapes, torch.float32)
    for seed in range(3):
        set_moments(source, seed)
        for param, one in zip(params, source, strict=True):
            param.grad, param.grad_var = one.grad.cuda(), one.grad_var.cuda()
        optimizer.step()
    for a, b in zip(params, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b, rtol=1e-4, atol=1e-5)
