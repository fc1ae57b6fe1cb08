"""NoiseScale on toys whose noise scale is known."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from vrgd_ray.config import ConfigError
from vrgd_ray.gradients import NoiseScale

GROUP_SIZE, NUM_GROUPS, DIMENSION = 4, 8, 20
COVARIANCE = np.linspace(0.5, 3.0, DIMENSION)
GRADIENT = np.full(DIMENSION, 0.4)
TRUTH = COVARIANCE.sum() / (GRADIENT**2).sum()


def observe(noise_scale, groups):
    """Feed one step; groups: the groups' gradients, one a row."""
    noise_scale.update(
        mean_norm_sq=float((groups.mean(0) ** 2).sum()),
        group_norm_sq=float((groups**2).sum(1).mean()),
        num_groups=len(groups),
    )


def independent_run(generator, steps, num_groups=NUM_GROUPS, gradient=GRADIENT, **options):
    noise_scale = NoiseScale(GROUP_SIZE, **options)
    for _ in range(steps):
        noise = generator.normal(size=(num_groups, DIMENSION)) * np.sqrt(COVARIANCE / GROUP_SIZE)
        observe(noise_scale, gradient + noise)
    return noise_scale


def sampled_without_replacement(generator, samples, batches, population):
    noise_scale = NoiseScale(GROUP_SIZE, population=population)
    for _ in range(batches):
        chosen = generator.permutation(len(samples))[: GROUP_SIZE * NUM_GROUPS]
        observe(noise_scale, samples[chosen].reshape(NUM_GROUPS, GROUP_SIZE, -1).mean(1))
    return noise_scale


def test_numerator_and_denominator_are_unbiased_for_a_known_covariance():
    noise_scale = independent_run(np.random.default_rng(0), 4000)
    assert noise_scale.noise_trace == pytest.approx(COVARIANCE.sum(), rel=0.01)
    assert noise_scale.grad_norm_sq == pytest.approx((GRADIENT**2).sum(), rel=0.03)
    assert noise_scale.value == pytest.approx(TRUTH, rel=0.03)


def test_groups_may_vary_from_step_to_step():
    noise_scale, generator = NoiseScale(GROUP_SIZE), np.random.default_rng(1)
    for step in range(4000):
        noise = generator.normal(size=(2 + step % 15, DIMENSION)) * np.sqrt(COVARIANCE / GROUP_SIZE)
        observe(noise_scale, GRADIENT + noise)
    assert noise_scale.value == pytest.approx(TRUTH, rel=0.05)


def test_draws_without_replacement_need_the_population():
    generator = np.random.default_rng(2)
    samples = generator.normal(size=(1000, DIMENSION)) * np.sqrt(COVARIANCE)
    samples += 0.1 - samples.mean(0)  # a mean gradient small enough for the correction to matter
    truth = samples.var(0).sum() / (samples.mean(0) ** 2).sum()
    corrected = sampled_without_replacement(generator, samples, 6000, population=1000)
    assert corrected.value == pytest.approx(truth, rel=0.1)
    uncorrected = sampled_without_replacement(generator, samples, 6000, population=None)
    bias = samples.var(0).sum() / 1000
    assert uncorrected.grad_norm_sq == pytest.approx((samples.mean(0) ** 2).sum() - bias, abs=0.4 * bias)


def test_the_interval_contains_the_truth_about_95_times_in_100():
    generator = np.random.default_rng(3)
    runs = [independent_run(generator, 100).interval for _ in range(300)]
    covered = np.mean([low <= TRUTH <= high for low, high in runs])
    assert 0.92 <= covered <= 0.98  # three standard errors around 0.95 are 0.91..0.99


def test_an_unresolved_gradient_gives_no_value_but_a_lower_bound():
    noise_scale = independent_run(np.random.default_rng(4), 50, gradient=0.0 * GRADIENT)
    assert noise_scale.value is None
    low, high = noise_scale.interval
    assert 0.0 < low < high == math.inf


def test_nothing_is_claimed_before_there_are_steps():
    noise_scale = NoiseScale(4)
    assert (noise_scale.value, noise_scale.interval, noise_scale.grad_norm_sq, noise_scale.noise_trace) == (None,) * 4
    noise_scale.update(mean_norm_sq=1.0, group_norm_sq=100.0, num_groups=2)
    assert noise_scale.grad_norm_sq < 0.0
    assert noise_scale.value is None


def test_decay_follows_a_changing_gradient():
    generator = np.random.default_rng(5)
    noise_scale = independent_run(generator, 500, decay=0.99)
    for _ in range(1500):
        noise = generator.normal(size=(NUM_GROUPS, DIMENSION)) * np.sqrt(COVARIANCE / GROUP_SIZE)
        observe(noise_scale, 3.0 * GRADIENT + noise)
    low, high = noise_scale.interval
    assert low < TRUTH / 9 < high
    assert noise_scale.value == pytest.approx(TRUTH / 9, rel=0.1)


def test_decay_weighs_the_steps_exponentially():
    noise_scale = NoiseScale(1, decay=0.5)
    traces = np.random.default_rng(6).uniform(1, 2, size=300)
    for trace in traces:
        noise_scale.update(mean_norm_sq=1.0, group_norm_sq=1.0 + trace / 2, num_groups=2)
    weights = 0.5 ** np.arange(300)[::-1]
    assert noise_scale.noise_trace == pytest.approx((weights * traces).sum() / weights.sum(), rel=1e-12)


def test_tensors_give_the_same_as_numbers_and_infinities_are_left_out():
    numbers, tensors = NoiseScale(4), NoiseScale(4)
    for step in range(700):  # more than are kept before the device is asked
        mean, group = 1.0 + step % 7, 20.0 + step % 5
        numbers.update(mean_norm_sq=mean, group_norm_sq=group, num_groups=8)
        tensors.update(mean_norm_sq=torch.tensor(mean), group_norm_sq=torch.tensor(group), num_groups=torch.tensor(8.0))
        tensors.update(mean_norm_sq=torch.tensor(math.inf), group_norm_sq=torch.tensor(math.nan), num_groups=8)
    assert tensors.value == pytest.approx(numbers.value, rel=1e-12)
    assert tensors.interval == pytest.approx(numbers.interval, rel=1e-12)


@pytest.mark.parametrize("decay", [None, 0.98])
def test_state_continues_where_it_was_saved_and_stays_small(decay):
    whole = independent_run(np.random.default_rng(7), 1000, decay=decay)
    generator = np.random.default_rng(7)
    first = independent_run(generator, 437, decay=decay)
    resumed = NoiseScale(GROUP_SIZE, decay=decay)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(1000 - 437):
        observe(resumed, GRADIENT + generator.normal(size=(NUM_GROUPS, DIMENSION)) * np.sqrt(COVARIANCE / GROUP_SIZE))
    assert (resumed.value, resumed.interval) == (whole.value, whole.interval)
    assert len(json.dumps(whole.state_dict())) < 8000


def test_blocks_stay_of_equal_length_however_long_the_run():
    noise_scale = NoiseScale(4)
    for _ in range(1000):
        noise_scale.update(mean_norm_sq=1.0, group_norm_sq=2.0, num_groups=8)
    steps = [row[0] for row in noise_scale.state_dict()["blocks"]["rows"]]
    assert sum(steps) == 1000
    assert 32 <= len(steps) <= 64
    assert set(steps[:-1]) == {16.0}


def test_a_state_of_other_settings_is_refused():
    with pytest.raises(ConfigError, match="group_size = 8"):
        NoiseScale(8).load_state_dict(NoiseScale(4).state_dict())


@pytest.mark.parametrize(
    "options", [{"group_size": 0}, {"group_size": 4, "decay": 1.0}, {"group_size": 4, "population": 1}]
)
def test_values_out_of_range_are_named(options):
    with pytest.raises(ConfigError, match=list(options)[-1]):
        NoiseScale(**options)


def test_one_group_is_refused():
    with pytest.raises(ConfigError, match="num_groups = 1"):
        NoiseScale(4).update(mean_norm_sq=1.0, group_norm_sq=1.0, num_groups=1)


@pytest.mark.data
def test_reference_vectors():
    folder = Path(os.environ.get("VRGD_SHARED", Path(__file__).parents[3] / "shared"))
    case = json.loads((folder / "vectors" / "noise_scale.json").read_text())
    running = NoiseScale(case["group_size"])
    for step, grad_norm_sq, noise_trace in zip(case["steps"], case["grad_norm_sq"], case["noise_trace"], strict=True):
        single = NoiseScale(case["group_size"])
        for noise_scale in (single, running):
            noise_scale.update(**step, num_groups=case["num_groups"])
        assert single.grad_norm_sq == pytest.approx(grad_norm_sq, rel=1e-10)
        assert single.noise_trace == pytest.approx(noise_trace, rel=1e-10)
    assert running.value == pytest.approx(case["ratio_of_means"], rel=1e-10)
    low, high = running.interval
    assert low < case["true_noise_scale"] < high
