"""The C kernels: built only when worth it, and never required."""

import pytest
import torch
from random_moments import parameters, set_moments

from vrgd_ray.optim import VRAdamW, native


@pytest.fixture(autouse=True)
def forget_library():
    native.library.cache_clear()
    yield
    native.library.cache_clear()


def step(shapes):
    params = parameters(shapes, torch.float32)
    set_moments(params, 0)
    VRAdamW(params).step()
    return params


def test_small_models_never_compile(monkeypatch):
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: pytest.fail("compiled"))
    step([(300, 300)])


@pytest.mark.parametrize("setting", [("VRGD_NATIVE", "0"), ("CC", "no-such-compiler"), ("CC", "false")])
def test_without_the_kernels_torch_does_the_same(monkeypatch, setting):
    expected = step([(1000, 600)])
    monkeypatch.setenv(*setting)
    native.library.cache_clear()
    assert native.library() is None
    torch.testing.assert_close(step([(1000, 600)]), expected)
