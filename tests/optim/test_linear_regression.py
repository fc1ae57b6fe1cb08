"""The linear regression of arXiv 2309.13681: how many of SGD's steps the scale saves, and with which bounds."""

import statistics

import pytest
import torch
from torch import nn

from vrgd_ray import GradientMoments
from vrgd_ray.optim import VRSGD

SEEDS, STEPS, GROUPS, GROUP_SIZE = 5, 100, 64, 32
TRUE = torch.arange(1.0, 11.0)
GRID = [0.3 * 1.03**i for i in range(12)]
OFF, NARROW, WIDE = (1.0, 1.0), (0.1, 1.0), (0.1, 2.0)


def samples():
    """Inputs, one seed after the other: steps x seeds x groups x samples x 10."""
    size = (STEPS, GROUPS, GROUP_SIZE, 10)
    return torch.stack([torch.rand(size, generator=torch.Generator().manual_seed(s)) for s in range(SEEDS)], dim=1)


def test_loss(weights):
    """Mean squared error over fresh inputs, for any number of weight vectors."""
    inputs = torch.rand(10_000, 10, generator=torch.Generator().manual_seed(100))
    return ((weights - TRUE) @ inputs.T).square().mean(-1)


test_loss.__test__ = False


def tuned_rate(curvatures, bounds):
    """The learning rate of the grid with the lowest final loss, median over seeds; by the closed form of g_d."""
    rates = torch.tensor(GRID)[:, None]
    weights = torch.zeros(SEEDS, len(GRID), 10)
    for curvature in curvatures:
        gradients = torch.einsum("skij,srj->srki", curvature, weights - TRUE)
        mean = gradients.mean(2)
        ratio = mean.square() / gradients.var(2, correction=0)
        scale = (ratio / ratio.mean(-1, keepdim=True)).clamp(*bounds)
        weights = weights - rates * (scale * mean if bounds != OFF else mean)
    return GRID[int(test_loss(weights).median(0).values.nan_to_num(nan=torch.inf).argmin())]


class Regressions(nn.Module):
    """One weight vector, a layer of its own, for every pair of bounds and seed."""

    def __init__(self, arms):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(10)) for _ in range(arms * SEEDS))

    def arm(self, number):
        return list(self.weights[number * SEEDS : (number + 1) * SEEDS])

    def forward(self, inputs):
        errors = torch.stack(list(self.weights)).view(-1, SEEDS, 1, 10).sub(TRUE).mul(inputs).sum(-1)
        return errors.square().mean(-1).sum()


@pytest.fixture(scope="module")
def curves():
    """Test loss after every step: steps x seeds, for each pair of bounds at its own tuned learning rate."""
    inputs = samples()
    curvatures = 2 * torch.einsum("tskbi,tskbj->tskij", inputs, inputs) / GROUP_SIZE
    bounds = [OFF, NARROW, WIDE]
    rates = [tuned_rate(curvatures, pair) for pair in bounds]
    assert all(GRID[0] < rate < GRID[-1] for rate in rates)
    model = Regressions(len(bounds))
    moments = GradientMoments(model)
    arms = [{"params": model.arm(i), "lr": rates[i], "gsnr_bounds": bounds[i]} for i in (1, 2)]
    optimizers = [torch.optim.SGD(model.arm(0), lr=rates[0]), VRSGD(arms, lr=0.0)]
    losses = []
    for step in inputs:
        for group in range(GROUPS):
            with moments.micro_batch(last=group == GROUPS - 1):
                model(step[:, group]).backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(test_loss(torch.stack(list(model.weights)).detach()).view(len(bounds), SEEDS))
    return dict(zip(bounds, torch.stack(losses).unbind(1), strict=True))


def steps_to(curve, target):
    """First step at which each seed is at its target; infinite if never."""
    reached = (curve <= target).int()
    return [int(r.argmax()) + 1 if r.any() else float("inf") for r in reached.unbind(1)]


def test_upper_bound_of_two_saves_two_fifths_of_the_steps(curves):
    assert statistics.median(steps_to(curves[WIDE], curves[OFF][-1])) <= 60


def test_upper_bound_of_one_saves_none(curves):
    assert steps_to(curves[NARROW], curves[OFF][-1]) == [float("inf")] * SEEDS
