"""Running statistics of normalisation layers over the groups of a step."""

import pytest
import torch
from torch import nn
from workloads import NormedBlobs

from vrgd_ray.config import ConfigError
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.running_statistics import RunningStatistics


def groups(number=3, size=5):
    torch.manual_seed(0)
    return torch.randn(number, size, 2, dtype=torch.float64) * 2 + 1


def run_step(model, data):
    statistics = RunningStatistics(model, world_size=1)
    with statistics.step():
        for group in data:
            model(group)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_a_step_moves_the_statistics_once_towards_the_mean_over_the_groups(momentum):
    model = nn.BatchNorm1d(2, momentum=momentum, dtype=torch.float64)
    mean, variance, first, second = torch.zeros(2), torch.ones(2), groups(3), groups(4)
    for step, data in enumerate((first, second)):
        run_step(model, data)
        factor = 1 / (step + 1) if momentum is None else momentum
        mean = (1 - factor) * mean + factor * data.mean(1).mean(0)
        variance = (1 - factor) * variance + factor * data.var(1, unbiased=True).mean(0)
    torch.testing.assert_close(model.running_mean, mean)
    torch.testing.assert_close(model.running_var, variance)
    assert int(model.num_batches_tracked) == 2
    assert model.momentum == momentum


def test_order_of_the_groups_does_not_matter():
    models = [nn.BatchNorm1d(2, dtype=torch.float64) for _ in range(2)]
    run_step(models[0], groups())
    run_step(models[1], groups().flip(0))
    torch.testing.assert_close(models[0].running_mean, models[1].running_mean)


def test_an_exception_restores_the_momentum():
    model = nn.BatchNorm1d(2, dtype=torch.float64)
    with pytest.raises(ZeroDivisionError), RunningStatistics(model, 1).step():
        raise ZeroDivisionError
    assert model.momentum == 0.1


def test_a_frozen_layer_keeps_its_statistics():
    model = nn.BatchNorm1d(2, dtype=torch.float64).eval()
    run_step(model, groups())
    assert model.running_mean.tolist() == [0.0, 0.0]
    assert int(model.num_batches_tracked) == 0


def test_layers_without_statistics_are_left_alone():
    run_step(nn.BatchNorm1d(2, track_running_stats=False, dtype=torch.float64), groups())


def test_synchronised_normalisation_is_refused():
    with pytest.raises(ConfigError, match="SyncBatchNorm"):
        RunningStatistics(nn.SyncBatchNorm(2), 2)


def test_the_loop_counts_steps_not_groups():
    run = TrainingRun(NormedBlobs(), NormedBlobs.reference, LocalContext())
    run.run()
    assert int(run.module[1].num_batches_tracked) == run.total_steps == 40
