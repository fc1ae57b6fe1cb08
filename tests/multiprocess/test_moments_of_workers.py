"""GradientMoments with DistributedDataParallel: every worker must hold what one process gets from stacked gradients.

One start of the workers runs all checks of a file, because the start itself takes seconds.
"""

import warnings

import pytest
import torch
import torch.distributed as dist
from launcher import run_workers
from stacked_gradients import Probe, assert_moments, group_gradients, groups_with_ratio, run_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import vrgd_ray.gradients.bucket as bucket_module
from vrgd_ray.config import ConfigError
from vrgd_ray.gradients import GradientMoments


def build(dtype=torch.float32, width=7, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
    return DistributedDataParallel(net.to(dtype), **options)


def all_groups(k=8, dtype=torch.float32):
    return [[(1.0, x)] for x in torch.randn(k, 4, 5, generator=torch.Generator().manual_seed(1), dtype=dtype)]


def share(groups, rank):
    """Groups of one worker; 8 groups over 3 workers make 3, 3 and 2."""
    return groups[rank :: dist.get_world_size()]


def assert_equal_on_all_workers(model):
    for parameter in model.parameters():
        for tensor in (parameter.grad, getattr(parameter, "grad_var", None)):
            if tensor is not None:
                others = [torch.empty(0)] * dist.get_world_size()
                dist.all_gather_object(others, tensor)
                assert all(torch.equal(tensor, other) for other in others)


def check(rank, model, loss, reference_loss, groups, steps=3, compress=None, rtol=1e-4, var_rtol=None):
    """Compare several steps of this worker's share with all groups stacked in this process."""
    moments = GradientMoments(model, compress=compress)
    for _ in range(steps):
        run_step(moments, loss, share(groups, rank))
        assert_moments(model, group_gradients(model.module, reference_loss, groups), rtol=rtol, var_rtol=var_rtol)
        assert_equal_on_all_workers(model)
    assert moments.num_groups == len(groups)
    moments.detach()
    return moments


def square(model):
    return lambda x: model(x).square().mean()


def brute_force(rank, compress):
    model = build()
    var_rtol = 1e-2 if compress else 1e-3
    check(rank, model, square(model), square(model.module), all_groups(), compress=compress, var_rtol=var_rtol)
    model = build(torch.float64, gradient_as_bucket_view=True, find_unused_parameters=True)
    groups = all_groups(dtype=torch.float64)
    rtol, var_rtol = 1e-10, 1e-2 if compress else 1e-9
    check(rank, model, square(model), square(model.module), groups, 4, compress, rtol, var_rtol)


def chunks(rank, compress):
    model = build()
    groups = [[(0.75, x[:3]), (0.25, x[3:])] for ((_, x),) in all_groups()]
    check(rank, model, square(model), square(model.module), groups, compress=compress, var_rtol=1e-2)


def parameters_used_by_some(rank, compress):
    model = DistributedDataParallel(Probe([(3,), (2, 2), (4,), (1,)]), find_unused_parameters=True)
    generator = torch.Generator().manual_seed(2)
    groups = []
    for d in range(8):
        a, b, c, _ = (torch.randn(p.shape, generator=generator) for p in model.module.parts)
        groups.append([(1.0, [a, b if d % 3 == 1 else None, c if d == 1 else None, None])])
    check(rank, model, model, model.module, groups, compress=compress, var_rtol=2e-2)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)

    def forward(self, x):
        return self.inner(torch.tanh(self.frozen(self.inner(x))))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.Linear(5, 5)
        self.reentrant = reentrant

    def forward(self, x):
        y = checkpoint(self.block, x.clone().requires_grad_(), use_reentrant=self.reentrant)
        return checkpoint(self.block, torch.tanh(y), use_reentrant=self.reentrant)


def unusual_models(rank, compress):
    for module in (Tied(), Checkpointed(False)):
        model = DistributedDataParallel(module)
        check(rank, model, square(model), square(module), all_groups(), compress=compress, var_rtol=1e-2)
    module = Checkpointed(True)  # a gradient in two pieces; torch.autograd.grad cannot be asked about it
    model, reference = DistributedDataParallel(module, find_unused_parameters=True), Checkpointed(False)
    moments = GradientMoments(model, compress=compress)
    for _ in range(2):
        run_step(moments, square(model), share(all_groups(), rank))
        assert_moments(model, group_gradients(reference, square(reference), all_groups()), var_rtol=1e-2)


def far_above_the_noise(rank, compress):
    gradients = groups_with_ratio(1e4)
    model = DistributedDataParallel(Probe([(20_000,)]))
    moments = GradientMoments(model, compress=compress)
    run_step(moments, model, share([[(1.0, [g])] for g in gradients], rank))
    assert_moments(model, [gradients], rtol=1e-6, var_rtol=1e-2, atol=0.0)


def same_gradient_as_plain_ddp(rank, compress):
    model, plain = build(), build()
    num_local = 8 // dist.get_world_size()
    mine = all_groups(num_local * dist.get_world_size())[rank * num_local : (rank + 1) * num_local]
    moments = GradientMoments(model, compress=compress)
    for step in range(2):
        run_step(moments, square(model), mine)
        plain.zero_grad()
        for i, ((_, x),) in enumerate(mine):
            plain.require_backward_grad_sync = i == num_local - 1
            (plain(x).square().mean() / num_local).backward()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            if dist.get_world_size() == 2:
                assert torch.equal(ours.grad, theirs.grad), step
            torch.testing.assert_close(ours.grad, theirs.grad)


def bytes_sent(rank, compress):
    model = build(width=200)
    payload = 4 * sum(p.numel() for p in model.parameters())
    moments = GradientMoments(model, compress=compress)
    run_step(moments, square(model), share(all_groups(), rank))
    assert moments.bytes_sent == pytest.approx((1.5 if compress else 2.0) * payload, rel=0.01)


def collectives_overlap_backward(rank, compress, monkeypatch):
    model = build()
    moments = GradientMoments(model, compress=compress)
    run_step(moments, square(model), share(all_groups(), rank))
    inside, launches, plain_all_reduce = [False], [], dist.all_reduce

    def all_reduce(*args, **kwargs):
        launches.append(inside[0])
        return plain_all_reduce(*args, **kwargs)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    mine = share(all_groups(), rank)
    for i, ((_, x),) in enumerate(mine):
        with moments.micro_batch(last=i == len(mine) - 1):
            loss = model(x).square().mean()
            inside[0] = True
            loss.backward()
            inside[0] = False
    num_buckets = 6  # bucket size 1 byte: one bucket a parameter
    assert launches == [True] * num_buckets + [False] * (num_buckets if compress else 0)


def loss_scaling_with_an_infinity_on_one_worker(rank, compress):
    model = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moments = GradientMoments(model, group_size=4, grad_scaler=scaler, compress=compress)
    run_step(moments, lambda x: scaler.scale(square(model)(x)), share(all_groups(), rank))
    stacks = group_gradients(model.module, square(model.module), all_groups())
    noise_scale = moments.noise_scale.value
    scaler.unscale_(optimizer)
    assert_moments(model, stacks, var_rtol=1e-2)
    scaler.step(optimizer)
    scaler.update()
    before = [p.detach().clone() for p in model.parameters()]
    mine = share(all_groups(), rank)
    if rank == 1:
        mine[1] = [(1.0, mine[1][0][1] * float("inf"))]
    run_step(moments, lambda x: scaler.scale(square(model)(x)), mine)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert moments.noise_scale.value == noise_scale


def failure_in_a_micro_batch(rank, compress):
    model = build()
    moments = GradientMoments(model, compress=compress)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), moments.micro_batch(last=True):
            _ = square(model)(all_groups()[0][0][1]) / (1 // 0)
        run_step(moments, square(model), share(all_groups(), rank))
        assert_moments(model, group_gradients(model.module, square(model.module), all_groups()), var_rtol=1e-2)


def one_group_each(rank, compress):
    model = build()
    groups = all_groups(dist.get_world_size())
    check(rank, model, square(model), square(model.module), groups, compress=compress, var_rtol=1e-2)


def buffers_follow_the_first_worker(rank, compress):
    module = nn.Linear(5, 2)
    module.register_buffer("tag", torch.zeros(1))
    model = DistributedDataParallel(module)
    moments = GradientMoments(model, compress=compress)
    for step in range(2):
        module.tag.fill_(10.0 * step + rank)
        run_step(moments, square(model), share(all_groups(), rank))
        assert module.tag.item() == 10.0 * step


def detached_model_reduces_as_before(rank, compress):
    model = build()
    moments = GradientMoments(model, compress=compress)
    run_step(moments, square(model), share(all_groups(), rank))
    moments.detach()
    model.zero_grad()
    square(model)(all_groups()[rank][0][1]).backward()
    assert_equal_on_all_workers(model)


def refusals(rank, compress):
    with pytest.raises(ConfigError, match="static_graph"):
        GradientMoments(build(static_graph=True))
    with pytest.raises(ConfigError, match="inside the model"):
        GradientMoments(nn.Sequential(build()))


CHECKS = [
    brute_force,
    chunks,
    parameters_used_by_some,
    unusual_models,
    far_above_the_noise,
    same_gradient_as_plain_ddp,
    bytes_sent,
    loss_scaling_with_an_infinity_on_one_worker,
    failure_in_a_micro_batch,
    one_group_each,
    buffers_follow_the_first_worker,
    detached_model_reduces_as_before,
]


def all_checks(rank):
    warnings.simplefilter("ignore")
    refusals(rank, None)
    for compress in (None, "bf16"):
        for check_one in CHECKS:
            check_one(rank, compress)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(bucket_module, "BUCKET_BYTES", 1)
            for check_one in CHECKS:
                if check_one is not bytes_sent:
                    check_one(rank, compress)
            collectives_overlap_backward(rank, compress, monkeypatch)


@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_agree_with_one_process(num_workers):
    run_workers(all_checks, num_workers)
