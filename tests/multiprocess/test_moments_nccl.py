"""GradientMoments over NCCL: the same as gloo promises, where there are two CUDA devices."""

import pytest
import torch
from launcher import run_workers
from stacked_gradients import assert_moments, group_gradients, run_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.gradients import GradientMoments


def both_ways(rank):
    torch.cuda.set_device(rank)
    groups = [[(1.0, x.cuda())] for x in torch.randn(8, 4, 5, generator=torch.Generator().manual_seed(1))]
    for compress in (None, "bf16"):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).cuda()
        model = DistributedDataParallel(module, device_ids=[rank])
        moments = GradientMoments(model, compress=compress)
        for _ in range(3):
            run_step(moments, lambda x, model=model: model(x).square().mean(), groups[rank::2])
            stacks = group_gradients(module, lambda x, module=module: module(x).square().mean(), groups)
            assert_moments(model, stacks, rtol=1e-3, atol=1e-6, var_rtol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices_agree_with_stacked_gradients():
    run_workers(both_ways, 2, backend="nccl")
