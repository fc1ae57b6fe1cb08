"""The scale itself: hand-computed values, exceptional elements, invariances."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_optimizers import scale as naive_scale

from vrgd_ray.optim import gsnr_scale
from vrgd_ray.optim.gsnr import apply_control


def tensors(*rows, dtype=torch.float64):
    return [torch.tensor(row, dtype=dtype) for row in rows]


def test_scale_of_hand_computed_ratios():
    # m^2/var = 4, 1, 0.25, 2.75; their mean is 2.
    mean, var = tensors([2.0, 1.0, 0.5, math.sqrt(2.75)], [1.0, 1.0, 1.0, 1.0])
    expected = torch.tensor([1.5, 0.5, 0.2, 1.375], dtype=torch.float64)
    torch.testing.assert_close(gsnr_scale(mean, var, (0.2, 1.5)), expected, rtol=1e-14, atol=0)


def test_exceptional_elements_do_not_enter_the_mean():
    # unused, free of noise, ratio 1, ratio 3: the mean is 2.
    mean, var = tensors([0.0, 5.0, 1.0, math.sqrt(3.0)], [0.0, 0.0, 1.0, 1.0])
    expected = torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=torch.float64)
    torch.testing.assert_close(gsnr_scale(mean, var, (0.1, 2.0)), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("bounds", "neutral"), [((0.1, 0.5), 0.5), ((1.5, 2.0), 1.5), ((0.1, 3.0), 1.0)])
def test_unused_elements_get_the_neutral_scale(bounds, neutral):
    zeros = torch.zeros(3, dtype=torch.float64)
    assert gsnr_scale(zeros, zeros, bounds).tolist() == [neutral] * 3


def test_layer_of_noise_alone_stays_neutral():
    mean, var = tensors([0.0, 0.0], [1.0, 2.0])
    assert gsnr_scale(mean, var, (0.1, 2.0)).tolist() == [1.0, 1.0]


def test_layer_without_noise_gets_the_upper_bound():
    mean, var = tensors([1.0, -2.0], [0.0, 0.0])
    assert gsnr_scale(mean, var, (0.1, 2.0)).tolist() == [2.0, 2.0]


def test_one_element_layer_is_its_own_mean():
    mean, var = tensors([0.3], [7.0])
    assert gsnr_scale(mean, var, (0.1, 2.0)).tolist() == pytest.approx([1.0])


def test_dtype_of_the_variance_decides_what_is_free_of_noise():
    mean, var = tensors([1.0, 1.0], [1e-8, 1.0])
    assert gsnr_scale(mean, var, (0.0, 5.0))[0] < 5.0
    assert gsnr_scale(mean, var.float(), (0.0, 5.0))[0] == 5.0


def test_bounds_of_one_switch_the_scale_off_even_for_not_a_number():
    mean, var = tensors([math.nan, 1.0], [1.0, math.inf])
    assert gsnr_scale(mean, var, (1.0, 1.0)).tolist() == [1.0, 1.0]


elements = st.one_of(st.just(0.0), st.floats(1e-3, 1e3), st.floats(-1e3, -1e-3))
layers = st.lists(st.tuples(elements, st.one_of(st.just(0.0), st.floats(1e-3, 1e3))), min_size=1, max_size=20)
bounds = st.tuples(st.floats(0, 2), st.floats(0.1, 3)).map(sorted).map(tuple)


@given(layer=layers, bounds=bounds)
def test_scale_equals_the_naive_one(layer, bounds):
    mean, var = map(list, zip(*layer, strict=True))
    actual = gsnr_scale(*tensors(mean, var), bounds).tolist()
    expected = [1.0] * len(mean) if bounds == (1.0, 1.0) else naive_scale(mean, var, *bounds)
    assert actual == pytest.approx(expected, rel=1e-10)


@given(layer=layers, factor=st.sampled_from([2.0**-16, 0.5, 3.0, 2.0**16]))
def test_scale_ignores_a_factor_common_to_all_gradients(layer, factor):
    mean, var = tensors(*zip(*layer, strict=True))
    torch.testing.assert_close(gsnr_scale(mean * factor, var * factor**2), gsnr_scale(mean, var))


def test_controls_keep_the_mean_and_shuffled_keeps_the_elements():
    scale = torch.rand(20, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(apply_control(scale, None, (0, 1, 2)), scale)
    torch.testing.assert_close(apply_control(scale, "constant", (0, 1, 2)), scale.mean().expand(20, 5))
    shuffled = apply_control(scale, "shuffled", (0, 1, 2))
    assert not torch.equal(shuffled, scale)
    assert torch.equal(shuffled.flatten().sort().values, scale.flatten().sort().values)


def test_shuffling_depends_on_seed_step_and_layer_alone():
    scale = torch.arange(100.0)
    same = [apply_control(scale, "shuffled", (3, 1, 2)) for _ in range(2)]
    assert torch.equal(*same)
    for key in [(4, 1, 2), (3, 2, 2), (3, 1, 3)]:
        assert not torch.equal(apply_control(scale, "shuffled", key), same[0])
