"""GradientMoments in one process, against the stacked gradients of all groups."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stacked_gradients import Probe, assert_moments, group_gradients, groups_with_ratio, run_step
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vrgd_ray.config import ConfigError
from vrgd_ray.gradients import GradientMoments

pytestmark = pytest.mark.filterwarnings("ignore:num_groups")


def whole(batches):
    return [[(1.0, batch)] for batch in batches]


def small_net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(dtype)


def inputs(k=8, dtype=torch.float32):
    return list(torch.randn(k, 4, 5, generator=torch.Generator().manual_seed(1), dtype=dtype))


def failing_loss(model, at):
    calls = iter(range(at + 1))
    return lambda x: model(x).square().mean() / (1 if next(calls) < at else 1 // 0)


class Tied(nn.Module):
    """A parameter used twice, a frozen one, one that some inputs skip and one that is never used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.sometimes = nn.Linear(5, 5)
        self.never = nn.Linear(5, 5)

    def forward(self, x):
        y = self.inner(torch.tanh(self.frozen(self.inner(x))))
        return self.sometimes(y) if x.sum() > 0 else y


def channels_last_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Unflatten(1, (1, 5, 1)), nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(20, 1))
    return net.to(memory_format=torch.channels_last)


MODELS = {"plain": small_net, "float64": lambda: small_net(torch.float64), "tied": Tied, "conv": channels_last_net}


@pytest.mark.parametrize("name", MODELS)
def test_moments_equal_the_stacked_gradients_step_after_step(name):
    model = MODELS[name]()
    moments = GradientMoments(model)
    dtype = next(model.parameters()).dtype
    for step in range(3):  # from the second step on, gradients are folded inside backward
        groups = whole([x + 0.3 * step for x in inputs(dtype=dtype)])
        run_step(moments, lambda x: model(x).square().mean(), groups)
        stacks = group_gradients(model, lambda x: model(x).square().mean(), groups)
        assert_moments(model, stacks, rtol=1e-10 if dtype == torch.float64 else 1e-4)
    assert moments.num_groups == 8


def test_gradient_is_bit_for_bit_that_of_plain_accumulation():
    model, reference = small_net(), small_net()
    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    for x in inputs():
        (reference(x).square().mean() / 8).backward()
    for ours, plain in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(ours.grad, plain.grad)


def test_chunks_with_weights_make_one_group():
    model = small_net()
    moments = GradientMoments(model)
    for _ in range(2):
        chunked = [[(0.75, x[:3]), (0.25, x[3:])] for x in inputs()]
        run_step(moments, lambda x: model(x).square().mean(), chunked)
        stacks = group_gradients(model, lambda x: model(x).square().mean(), whole(inputs()))
        assert_moments(model, stacks)


def test_chunk_without_a_gradient_keeps_what_earlier_chunks_gave():
    model = Probe([(3,), (2,)])
    moments = GradientMoments(model)
    chunks = [[(0.5, [torch.ones(3) * d, torch.ones(2)]), (0.5, [None, torch.ones(2)])] for d in range(8)]
    for _ in range(2):
        run_step(moments, model, chunks)
        assert_moments(model, group_gradients(model, model, chunks))


def test_variance_is_right_far_above_the_noise():
    gradients = groups_with_ratio(1e4)
    model = Probe([(20_000,)])
    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, model, whole([[g] for g in gradients]))
        assert_moments(model, [gradients], rtol=1e-6, var_rtol=1e-3, atol=0.0)


def test_equal_groups_have_no_variance_to_speak_of():
    model = Probe([(100,)])
    gradient = torch.rand(100, generator=torch.Generator().manual_seed(0))
    run_step(GradientMoments(model), model, whole([[gradient]] * 16))
    mean, variance = model.parts[0].grad, model.parts[0].grad_var
    assert (variance <= 8 * torch.finfo(torch.float32).eps * mean.square()).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_moments_equal_the_reference_for_any_groups_and_uses(data):
    shapes = data.draw(st.lists(st.sampled_from([(), (1,), (3,), (2, 3), (0,), (4, 1, 2)]), min_size=1, max_size=4))
    k = data.draw(st.integers(2, 9))
    scale = data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    groups = []
    for _ in range(k):
        gradients = [scale * (torch.randn(s, generator=generator, dtype=torch.float64) + 1) for s in shapes]
        used = data.draw(st.lists(st.booleans(), min_size=len(shapes), max_size=len(shapes)))
        used[data.draw(st.integers(0, len(shapes) - 1))] = True
        for gradient in gradients:
            if gradient.ndim == 2:
                gradient[0] = 0.0  # an unused row of an embedding
        groups.append([(1.0, [g if u else None for g, u in zip(gradients, used, strict=True)])])
    model = Probe(shapes, dtype=torch.float64)
    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, model, groups)
        assert_moments(model, group_gradients(model, model, groups), rtol=1e-9, atol=1e-12 * scale**2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_even_where_gradients_arrive_in_pieces(reentrant):
    model = small_net()
    block = nn.Linear(5, 5)
    model.add_module("block", block)  # used by two checkpoints: reentrant ones accumulate its gradient in two pieces

    def loss(x):
        y = checkpoint(block, x.requires_grad_(), use_reentrant=reentrant)
        y = checkpoint(block, torch.tanh(y), use_reentrant=reentrant)
        return model[2](model[1](model[0](y))).square().mean()

    def plain(x):
        return model[2](model[1](model[0](block(torch.tanh(block(x)))))).square().mean()

    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, loss, whole([x.clone() for x in inputs()]))
        assert_moments(model, group_gradients(model, plain, whole(inputs())))


def test_several_backward_calls_make_one_group():
    model = small_net()
    moments = GradientMoments(model)
    for _ in range(3):
        for i, x in enumerate(inputs()):
            with moments.micro_batch(last=i == 7):
                model(x).square().mean().backward()
                model(x).mean().backward()
        stacks = group_gradients(model, lambda x: model(x).square().mean() + model(x).mean(), whole(inputs()))
        assert_moments(model, stacks)


def test_a_second_backward_after_the_first_step_is_an_error():
    model = small_net()
    moments = GradientMoments(model)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    with moments.micro_batch(last=False):
        model(inputs()[0]).mean().backward()
        with pytest.raises(RuntimeError, match="second gradient"):
            model(inputs()[0]).mean().backward()
    with pytest.raises(ZeroDivisionError):
        run_step(moments, failing_loss(model, at=1), whole(inputs()))
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    assert_moments(model, group_gradients(model, lambda x: model(x).square().mean(), whole(inputs())))


def test_gradients_that_autograd_lets_share_memory():
    model = Probe([(4, 4), (4, 4)])

    def loss(weights):
        return ((model.parts[0].view(-1) + model.parts[1].view(-1)) * weights).sum()

    groups = whole(list(torch.randn(8, 16, generator=torch.Generator().manual_seed(0))))
    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, loss, groups)
        assert_moments(model, group_gradients(model, loss, groups))


def drawn(*shapes):
    model = Probe(shapes)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    return model, *model.parts


def low_rank_plus_view():
    model, a, b, w = drawn((256, 4), (4, 256), (256, 256))
    return model, lambda x: F.linear(x, a @ b + w.view(256, 256)).square().mean()


def skip_past_a_layer():
    model, table, weight, skip = drawn((300, 256), (256, 256), (1, 300, 256))

    def loss(x):
        hidden = torch.tanh(table @ weight)
        return ((hidden + skip.squeeze(0)) * x).square().mean()

    return model, loss


@pytest.mark.parametrize("case", [low_rank_plus_view, skip_past_a_layer])
def test_gradients_that_share_memory_with_one_still_on_its_way(case):
    model, loss = case()
    groups = whole(list(torch.randn(8, 1, 256, generator=torch.Generator().manual_seed(0))))
    moments = GradientMoments(model)
    for _ in range(2):
        run_step(moments, loss, groups)
        assert_moments(model, group_gradients(model, loss, groups))


def test_a_gradient_that_the_user_keeps_is_left_as_it_is():
    model, weight = drawn((256, 256))
    groups = whole(list(torch.randn(4, 256, 256, generator=torch.Generator().manual_seed(0))))
    moments, kept = GradientMoments(model), []

    def loss(x):
        hidden = weight.view(-1)
        hidden.register_hook(kept.append)
        return (hidden * x.view(-1)).sum()

    for _ in range(2):
        run_step(moments, loss, groups)
    for gradient, [(_, x)] in zip(kept, groups * 2, strict=True):
        assert torch.equal(gradient, x.view(-1))


def test_partial_moments_are_not_mistaken_for_complete_ones():
    model = small_net()
    moments = GradientMoments(model)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    first = [p.grad_var for p in model.parameters()]
    with moments.micro_batch(last=False):
        model(inputs()[0]).square().mean().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not hasattr(parameter, "grad_var")
    with moments.micro_batch(last=True):
        model(inputs()[1]).square().mean().backward()
    assert_moments(model, group_gradients(model, lambda x: model(x).square().mean(), whole(inputs()[:2])))
    for parameter, old in zip(model.parameters(), first, strict=True):
        assert parameter.grad_var is not old


def test_an_exception_discards_the_step():
    model = small_net()
    moments = GradientMoments(model)
    with pytest.raises(ZeroDivisionError):
        run_step(moments, failing_loss(model, at=3), whole([100 * x for x in inputs()]))
    assert all(p.grad is None and not hasattr(p, "grad_var") for p in model.parameters())
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    assert_moments(model, group_gradients(model, lambda x: model(x).square().mean(), whole(inputs())))
    assert moments.num_groups == 8


def test_detach_leaves_the_module_as_it_was():
    model = small_net()
    moments = GradientMoments(model)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    moments.detach()
    for parameter in model.parameters():
        assert not parameter._post_accumulate_grad_hooks
        assert not hasattr(parameter, "grad_var")
        parameter.grad = None
    model(inputs()[0]).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(RuntimeError, match="detached"), moments.micro_batch(last=False):
        pass


def test_backward_outside_the_context_is_left_alone():
    model = small_net()
    moments = GradientMoments(model)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    model.zero_grad()
    model(inputs()[0]).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_clipping_keeps_mean_and_variance_consistent():
    model, reference = small_net(), small_net()
    run_step(GradientMoments(reference), lambda x: reference(x).square().mean(), whole(inputs()))
    moments = GradientMoments(model, group_size=4)
    with pytest.raises(RuntimeError, match="last=True"):
        moments.clip_grad_norm_(1.0)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    noise_trace = moments.noise_scale.noise_trace
    norm = moments.clip_grad_norm_(0.01)
    assert norm > 0.02
    torch.testing.assert_close(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item(), 0.01)
    for clipped, whole_one in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(clipped.grad, whole_one.grad * (0.01 / norm))
        torch.testing.assert_close(clipped.grad_var, whole_one.grad_var * (0.01 / norm) ** 2, rtol=1e-4, atol=1e-9)
    assert moments.noise_scale.noise_trace == noise_trace


def test_clipping_below_the_limit_changes_nothing():
    model = small_net()
    moments = GradientMoments(model)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    before = [(p.grad.clone(), p.grad_var.clone()) for p in model.parameters()]
    moments.clip_grad_norm_(1e6)
    for parameter, (mean, variance) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, mean)
        assert torch.equal(parameter.grad_var, variance)


def test_noise_scale_is_that_of_the_stacked_gradients():
    model = small_net()
    moments = GradientMoments(model, group_size=4)
    run_step(moments, lambda x: model(x).square().mean(), whole(inputs()))
    stacks = group_gradients(model, lambda x: model(x).square().mean(), whole(inputs()))
    flat = torch.cat([stack.flatten(1) for stack in stacks], dim=1).double()
    spread = flat.var(0, unbiased=True).sum().item()
    assert moments.noise_scale.noise_trace == pytest.approx(4 * spread, rel=1e-5)
    assert moments.noise_scale.grad_norm_sq == pytest.approx(flat.mean(0).square().sum().item() - spread / 8, rel=1e-4)


def test_loss_scaling_leaves_both_moments_ready_for_the_scaler():
    model, reference = small_net(), small_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moments = GradientMoments(model, group_size=4, grad_scaler=scaler)
    plain = GradientMoments(reference, group_size=4)
    for _ in range(2):
        run_step(moments, lambda x: scaler.scale(model(x).square().mean()), whole(inputs()))
        run_step(plain, lambda x: reference(x).square().mean(), whole(inputs()))
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, 1024.0 * theirs.grad)
            torch.testing.assert_close(ours.grad_var, theirs.grad_var)
    assert moments.noise_scale.value == pytest.approx(plain.noise_scale.value)
    scaler.unscale_(optimizer)
    moments.clip_grad_norm_(1e-3)
    before = [p.detach().clone() for p in model.parameters()]
    scaler.step(optimizer)
    scaler.update()
    moved = torch.cat([(p - old).flatten() for p, old in zip(model.parameters(), before, strict=True)])
    torch.testing.assert_close(moved.norm().item(), 1e-4, rtol=1e-2, atol=0.0)


def test_a_skipped_step_does_not_touch_the_noise_scale():
    model = small_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moments = GradientMoments(model, group_size=4, grad_scaler=scaler)
    run_step(moments, lambda x: scaler.scale(model(x).square().mean()), whole(inputs()))
    value, before = moments.noise_scale.value, [p.detach().clone() for p in model.parameters()]
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before[0], model[0].weight)
    overflowing = [x * float("inf") if i == 2 else x for i, x in enumerate(inputs())]
    before = [p.detach().clone() for p in model.parameters()]
    run_step(moments, lambda x: scaler.scale(model(x).square().mean()), whole(overflowing))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert moments.noise_scale.value == value
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_low_precision_parameters_have_float32_variances():
    model = Probe([(64,)], dtype=torch.bfloat16)
    gradients = (1 + 0.1 * torch.randn(8, 64, generator=torch.Generator().manual_seed(0))).bfloat16()
    run_step(GradientMoments(model), model, whole([[g] for g in gradients]))
    assert model.parts[0].grad.dtype == torch.bfloat16
    assert model.parts[0].grad_var.dtype == torch.float32
    assert_moments(model, [gradients], rtol=1e-2, var_rtol=1e-4)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no Tensor.grad_dtype")
def test_low_precision_parameters_may_ask_for_a_float32_mean():
    model = Probe([(64,)], dtype=torch.bfloat16)
    model.parts[0].grad_dtype = torch.float32
    gradients = (1 + 0.1 * torch.randn(8, 64, generator=torch.Generator().manual_seed(0))).bfloat16()
    run_step(GradientMoments(model), model, whole([[g] for g in gradients]))
    assert model.parts[0].grad.dtype == torch.float32
    assert_moments(model, [gradients], rtol=1e-6, var_rtol=1e-4)


def test_few_groups_warn_once_and_one_group_is_refused():
    model = small_net()
    moments = GradientMoments(model)
    with pytest.warns(UserWarning, match="num_groups = 4"):
        run_step(moments, lambda x: model(x).square().mean(), whole(inputs(4)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_step(moments, lambda x: model(x).square().mean(), whole(inputs(4)))
    with pytest.raises(ConfigError, match="at least 2 groups"):
        run_step(moments, lambda x: model(x).square().mean(), whole(inputs(1)))


MISUSES = {
    "last micro-batch": {"last": True, "group_end": False},
    "sum to 0.5": {"last": False, "weight": 0.5},
}


@pytest.mark.parametrize("message", MISUSES)
def test_misuse_of_micro_batch(message):
    with pytest.raises(ConfigError, match=message), GradientMoments(small_net()).micro_batch(**MISUSES[message]):
        pass


def test_misuse_of_the_object():
    model = small_net()
    moments = GradientMoments(model)
    with pytest.raises(RuntimeError, match="first"):
        _ = moments.num_groups
    with pytest.raises(ConfigError, match="group_size"):
        _ = moments.noise_scale
    with pytest.raises(RuntimeError, match="backward"), moments.micro_batch(last=False):
        model(inputs()[0])
    with pytest.raises(RuntimeError, match="nested"), moments.micro_batch(last=False), moments.micro_batch(last=False):
        pass


def sharded():
    class FullyShardedDataParallel(nn.Linear):
        pass

    return FullyShardedDataParallel(2, 2)


REFUSED = {
    "FSDP": sharded,
    "complex": lambda: Probe([(2,)], dtype=torch.complex64),
    "no parameter": lambda: small_net().requires_grad_(False),
    "lazy": lambda: nn.LazyLinear(2),
}


@pytest.mark.parametrize("message", REFUSED)
def test_models_that_cannot_be_served_are_refused(message):
    with pytest.raises(ConfigError, match=message):
        GradientMoments(REFUSED[message]())


def test_unknown_compression_is_refused():
    with pytest.raises(ConfigError, match="compress = 'fp8'"):
        GradientMoments(small_net(), compress="fp8")


def test_sparse_gradients_are_refused():
    model = nn.Embedding(10, 3, sparse=True)
    moments = GradientMoments(model)
    with pytest.raises(ConfigError, match="sparse=False"), moments.micro_batch(last=False):
        model(torch.tensor([1, 2])).sum().backward()


def test_deterministic_sums_are_in_float64_and_the_moments_in_the_usual_dtypes():
    """1e8, -1e8 and a little: float32 loses the little, float64 keeps it."""
    model = torch.nn.Linear(1, 1, bias=False)
    groups = [1e8, 0.25, -1e8, 0.25]
    found = {}
    for deterministic in (False, True):
        moments = GradientMoments(model, deterministic=deterministic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i, gradient in enumerate(groups):
                with moments.micro_batch(last=i == len(groups) - 1):
                    (model.weight * gradient).sum().backward()
        found[deterministic] = model.weight.grad.item()
        assert model.weight.grad.dtype == model.weight.grad_var.dtype == torch.float32
        moments.detach()
    assert found == {False: 0.0625, True: 0.125}
