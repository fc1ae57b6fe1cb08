"""Every optimizer on every path against the naive rules, hand-computed values and torch's own optimizers."""

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_optimizers import NaiveOptimizer
from random_moments import parameters, set_moments

from vrgd_ray.optim import LAMB, LARS, VRLAMB, VRLARS, VRSGD, VRAdam, VRAdamW, blocks, gsnr_scale, kernels

RULES = {
    "vr_sgd": (VRSGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "vr_adam": (VRAdam, {"lr": 0.01, "betas": (0.9, 0.99, 0.8), "eps": 1e-8, "weight_decay": 0.1}),
    "vr_adamw": (VRAdamW, {"lr": 0.01, "betas": (0.9, 0.99, 0.8), "eps": 1e-8, "weight_decay": 0.1}),
    "vr_lars": (
        VRLARS,
        {"lr": 1.0, "momentum": 0.9, "weight_decay": 0.01, "trust_coefficient": 0.01, "eps": 1e-8, "nesterov": True},
    ),
    "vr_lamb": (VRLAMB, {"lr": 0.01, "betas": (0.9, 0.99, 0.8), "eps": 1e-6, "weight_decay": 0.1}),
}
SHAPES = [(5, 4), (7,), (1,), (2, 3, 2), ()]
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def train(optimizer_class, options, steps=4, dtype=torch.float64, shapes=SHAPES, **more):
    params = parameters(shapes, dtype)
    optimizer = optimizer_class(params, **options, **more)
    for seed in range(steps):
        set_moments(params, seed)
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("bounds", [(0.1, 1.0), (0.0, 2.5), (1.0, 1.0)])
def test_rule_equals_the_naive_one(name, bounds, path):
    optimizer_class, options = RULES[name]
    params = parameters(SHAPES)
    optimizer = optimizer_class(params, **options, gsnr_bounds=bounds, **path)
    naive = [NaiveOptimizer(name, p.detach().flatten().tolist(), **options, gsnr_bounds=bounds) for p in params]
    for seed in range(5):
        set_moments(params, seed)
        params[0].grad[1], params[0].grad_var[1] = 0.0, 0.0  # an unused row
        params[1].grad_var[:2] = 0.0  # elements without noise
        params[2].grad.zero_()  # a layer without gradient, in one of the steps also without variance
        params[2].grad_var.mul_(seed % 2)
        for param, one in zip(params, naive, strict=True):
            one.step(param.grad.flatten().tolist(), param.grad_var.flatten().tolist())
        optimizer.step()
        for param, one in zip(params, naive, strict=True):
            expected = torch.tensor(one.theta, dtype=torch.float64).view(param.shape)
            torch.testing.assert_close(param.detach(), expected, **EXACT)


layers = st.lists(
    st.tuples(st.sampled_from([-2.0, -0.5, 0.0, 0.7, 3.0]), st.sampled_from([0.0, 0.1, 1.0, 4.0])),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(sorted(RULES)), moments=st.lists(layers, min_size=1, max_size=4), loop=st.booleans())
def test_rule_equals_the_naive_one_on_any_moments(name, moments, loop):
    optimizer_class, options = RULES[name]
    params = parameters([(len(layer),) for layer in moments])
    optimizer = optimizer_class(params, **options, foreach=not loop)
    naive = [NaiveOptimizer(name, p.detach().tolist(), **options) for p in params]
    for _ in range(2):
        for param, one, layer in zip(params, naive, moments, strict=True):
            mean, var = map(list, zip(*layer, strict=True))
            param.grad, param.grad_var = (torch.tensor(row, dtype=torch.float64) for row in (mean, var))
            one.step(mean, var)
        optimizer.step()
    for param, one in zip(params, naive, strict=True):
        torch.testing.assert_close(param.detach().tolist(), one.theta, rtol=1e-9, atol=1e-9)


def test_sgd_by_hand(path):
    # ratios 4 and 1, mean 2.5, scale clip(1.6) = 1 and 0.4; d = 2 + 0.1 and 0.4 - 0.2
    (param,) = parameters([(2,)])
    param.data = torch.tensor([1.0, -2.0], dtype=torch.float64)
    param.grad, param.grad_var = torch.tensor([2.0, 1.0]).double(), torch.ones(2).double()
    VRSGD([param], lr=0.5, weight_decay=0.1, **path).step()
    torch.testing.assert_close(param.tolist(), [1.0 - 0.5 * 2.1, -2.0 - 0.5 * 0.2], rtol=1e-14, atol=0)


def test_adamw_by_hand(path):
    # the first step of Adam is sign(g^), whatever the scale
    (param,) = parameters([(2,)])
    param.data = torch.tensor([1.0, -2.0], dtype=torch.float64)
    param.grad, param.grad_var = torch.tensor([2.0, -1.0]).double(), torch.ones(2).double()
    VRAdamW([param], lr=0.1, eps=0.0, weight_decay=0.5, **path).step()
    torch.testing.assert_close(param.tolist(), [0.95 - 0.1, -1.9 + 0.1], rtol=1e-14, atol=0)


def test_lamb_by_hand(path):
    # theta = (3, 4): norm 5; u = (1, 1) + 0: norm sqrt(2)
    (param,) = parameters([(2,)])
    param.data = torch.tensor([3.0, 4.0], dtype=torch.float64)
    param.grad, param.grad_var = torch.tensor([2.0, 1.0]).double(), torch.ones(2).double()
    VRLAMB([param], lr=0.1, eps=0.0, weight_decay=0.0, **path).step()
    step = 0.1 * 5 / 2**0.5
    torch.testing.assert_close(param.tolist(), [3.0 - step, 4.0 - step], rtol=1e-14, atol=0)


def test_lars_by_hand(path):
    # theta = (3, 4): norm 5; g^ = (3, 4*0.4...) with equal ratios is the gradient itself: norm 10
    (param,) = parameters([(2,)])
    param.data = torch.tensor([3.0, 4.0], dtype=torch.float64)
    param.grad, param.grad_var = torch.tensor([6.0, 8.0]).double(), torch.tensor([36.0, 64.0]).double()
    VRLARS([param], lr=1.0, trust_coefficient=0.5, eps=0.0, **path).step()
    torch.testing.assert_close(param.tolist(), [3.0 - 0.25 * 6, 4.0 - 0.25 * 8], rtol=1e-14, atol=0)


BASES = [
    (VRSGD, torch.optim.SGD, {"lr": 0.1}),
    (VRSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True, "maximize": True}),
    (VRAdam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    (VRAdamW, torch.optim.AdamW, {"lr": 0.01, "maximize": True}),
    (VRLARS, LARS, {"lr": 1.0, "weight_decay": 0.1, "maximize": True}),
    (VRLAMB, LAMB, {"lr": 0.01}),
]


@pytest.mark.parametrize(("optimizer_class", "base", "options"), BASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_bounds_of_one_are_the_base_to_the_bit(optimizer_class, base, options, dtype):
    params, _ = train(optimizer_class, options, dtype=dtype, gsnr_bounds=(1, 1), foreach=False)
    expected, _ = train(base, options, dtype=dtype, foreach=False)
    assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))


@pytest.mark.parametrize(("optimizer_class", "base", "options"), BASES)
def test_bounds_of_one_need_no_variance_on_any_path(optimizer_class, base, options, path):
    params, expected = parameters(SHAPES), parameters(SHAPES)
    for group, kind, more in [(params, optimizer_class, {"gsnr_bounds": (1, 1), **path}), (expected, base, {})]:
        optimizer = kind(group, **options, **more)
        for seed in range(3):
            set_moments(group, seed)
            for param in group:
                del param.grad_var
            optimizer.step()
    for a, b in zip(params, expected, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


LARGE = [(300,), (200, 100), (40, 50), (3,), (70_000,), (1,), (33_000,)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("piece", [2**12, 2**18])
def test_paths_agree_on_layers_large_and_small(name, dtype, piece, path, monkeypatch):
    monkeypatch.setitem(blocks.PIECE, "cpu", piece)
    monkeypatch.setattr(kernels, "SPLIT", piece)
    optimizer_class, options = RULES[name]
    # Where decay and gradient cancel, Adam's normalisation blows rounding up to any size.
    options = options | ({"weight_decay": 0.0} if name == "vr_adam" else {})
    params, _ = train(optimizer_class, options, dtype=dtype, shapes=LARGE, **path)
    expected, _ = train(optimizer_class, options, dtype=dtype, shapes=LARGE, foreach=False)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else EXACT
    for a, b in zip(params, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("name", RULES)
def test_large_layer_with_exceptions_in_some_pieces(name, path, monkeypatch):
    monkeypatch.setitem(blocks.PIECE, "cpu", 2**10)
    monkeypatch.setattr(kernels, "SPLIT", 2**12)
    optimizer_class, options = RULES[name]
    results = []
    for more in ({"foreach": False}, path):
        params = parameters([(300, 200), (50,), (60,)])
        optimizer = optimizer_class(params, **options, **more)
        for seed in range(3):
            set_moments(params, seed)
            params[0].grad[40:90], params[0].grad_var[40:90] = 0.0, 0.0
            params[0].grad_var[100:110] = 0.0
            params[0].grad[200] *= 1e4  # ratios far above the others, but not free of noise
            params[2].grad_var[3] = 0.0
            optimizer.step()
        results.append(params)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("name", RULES)
def test_steps_are_deterministic(name, path):
    runs = [train(*RULES[name], dtype=torch.float32, shapes=LARGE, **path)[0] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("name", RULES)
def test_non_contiguous_parameters(name, path):
    results = []
    for transpose in (False, True):
        params = parameters([(30, 20)])
        if transpose:
            params[0].data = params[0].data.t().contiguous().t()
        optimizer = RULES[name][0](params, **RULES[name][1], **path)
        for seed in range(3):
            set_moments(params, seed)
            optimizer.step()
        results.append(params[0].detach())
    torch.testing.assert_close(*results, **EXACT)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("gradient_dtype", [torch.bfloat16, torch.float32])
def test_bfloat16_parameters_have_float32_state(name, gradient_dtype, path):
    optimizer_class, options = RULES[name]
    params = parameters(SHAPES, torch.bfloat16)
    optimizer = optimizer_class(params, **options, **path)
    copies = [torch.nn.Parameter(param.detach().float()) for param in params]
    reference = optimizer_class(copies, **options, **path)
    set_moments(params, 0)
    for param, copy in zip(params, copies, strict=True):
        gradient, param.grad = param.grad, None
        param.grad_dtype = gradient_dtype
        param.grad = gradient.to(gradient_dtype)
        copy.grad, copy.grad_var = param.grad.float(), param.grad_var.clone()
    optimizer.step()
    reference.step()
    for param, copy in zip(params, copies, strict=True):
        assert param.dtype == torch.bfloat16
        torch.testing.assert_close(param.float(), copy, rtol=2**-8, atol=1e-6)
        for key, value in optimizer.state[param].items():
            assert value.dtype == torch.float32, key


def test_variance_may_be_wider_than_the_parameter(path):
    params = parameters(SHAPES, torch.float32)
    set_moments(params, 0, var_dtype=torch.float64)
    scales = [gsnr_scale(param.grad, param.grad_var) for param in params]
    expected = [param.detach() - 0.1 * s * param.grad for param, s in zip(params, scales, strict=True)]
    VRSGD(params, lr=0.1, **path).step()
    for param, value in zip(params, expected, strict=True):
        torch.testing.assert_close(param.detach(), value.float())


def vector_files():
    folder = Path(os.environ.get("VRGD_SHARED", Path(__file__).parents[3] / "shared"))
    return sorted((folder / "vectors").glob("vr_*.json"))


@pytest.mark.data
def test_published_vectors_are_found():
    assert vector_files(), "set VRGD_SHARED to the folder that holds vectors/vr_*.json"


@pytest.mark.data
@pytest.mark.parametrize("file", vector_files(), ids=lambda file: file.stem)
def test_published_vectors(file, path):
    case = json.loads(file.read_text())
    params = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in case["params"]]
    optimizer = RULES[case["optimizer"]][0](params, **case["hyper"], **path)
    for gradients, expected in zip(case["grads"], case["expected"], strict=True):
        for param, groups in zip(params, gradients, strict=True):
            stacked = torch.tensor(groups, dtype=torch.float64)
            param.grad, param.grad_var = stacked.mean(0), stacked.var(0, correction=0)
        optimizer.step()
        for param, value in zip(params, expected, strict=True):
            torch.testing.assert_close(param.detach(), torch.tensor(value, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.data
def test_published_scales():
    case = json.loads((vector_files()[0].parent / "gsnr_scale.json").read_text())
    mean, var = (torch.tensor(case[key], dtype=torch.float64) for key in ("mean", "var"))
    for one in case["cases"]:
        expected = torch.tensor(one["expected"], dtype=torch.float64)
        torch.testing.assert_close(gsnr_scale(mean, var, one["bounds"]), expected, rtol=0, atol=1e-10)
