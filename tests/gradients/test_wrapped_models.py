"""GradientMoments on models that torch has wrapped or moved: compiled, sharded, on a CUDA device."""

import pytest
import torch
import torch.distributed as dist
from stacked_gradients import assert_moments, group_gradients, run_step
from torch import nn

from vrgd_ray.config import ConfigError
from vrgd_ray.gradients import GradientMoments


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))


def groups(device="cpu"):
    inputs = torch.randn(8, 4, 5, generator=torch.Generator().manual_seed(1))
    return [[(1.0, x.to(device))] for x in inputs]


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def fully_shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


def wrapper(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


@pytest.mark.parametrize("shard", [fully_shard, wrapper])
@pytest.mark.filterwarnings("ignore")
def test_sharded_models_are_refused(process_group, shard):
    with pytest.raises(ConfigError, match="FSDP and DTensor"):
        GradientMoments(shard(net()))


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_is_seen_through(backend):
    model = net()
    compiled = torch.compile(model, backend=backend)
    moments = GradientMoments(compiled)
    for _ in range(2):
        run_step(moments, lambda x: compiled(x).square().mean(), groups())
        assert_moments(model, group_gradients(model, lambda x: model(x).square().mean(), groups()))


@pytest.mark.gpu
@pytest.mark.parametrize("scaled", [False, True])
def test_moments_on_a_cuda_device(scaled):
    model = net().cuda()
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=scaled)
    moments = GradientMoments(model, group_size=4, grad_scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(2):
        run_step(moments, lambda x: scaler.scale(model(x).square().mean()), groups("cuda"))
        scaler.unscale_(optimizer)
        stacks = group_gradients(model, lambda x: model(x).square().mean(), groups("cuda"))
        assert_moments(model, stacks, rtol=1e-3, atol=1e-6)
        scaler.step(optimizer)
        scaler.update()
    assert moments.noise_scale.noise_trace > 0


@pytest.mark.gpu
def test_a_step_on_a_cuda_device_does_not_wait_for_it():
    model, batches = net().cuda(), groups("cuda")
    moments = GradientMoments(model, group_size=4)
    run_step(moments, lambda x: model(x).square().mean(), batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run_step(moments, lambda x: model(x).square().mean(), batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
