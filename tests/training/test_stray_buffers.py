"""Buffers that a forward pass changes are named, and no others."""

import math

import pytest
import torch
from torch import nn

from vrgd_ray.training.stray_buffers import StrayBuffers


def module_with(buffer):
    module = nn.Module()
    module.register_buffer("mask", buffer)
    return module


def said_after(module, change=lambda buffer: None):
    said = []
    stray = StrayBuffers(module)
    change(module.mask)
    stray.report(said.append)
    return said


CONSTANT = {
    "nan": torch.tensor([math.nan, 1.0, -math.inf]),
    "half": torch.ones(2, dtype=torch.float16),
    "whole": torch.tensor([1, 2]),
    "truth": torch.tensor([True, False]),
    "complex": torch.tensor([1j, complex(math.nan, 0)]),
    "empty": torch.empty(0),
}


@pytest.mark.parametrize("buffer", CONSTANT.values(), ids=CONSTANT)
def test_a_buffer_that_stays_is_not_named(buffer):
    assert said_after(module_with(buffer.clone())) == []


@pytest.mark.parametrize(
    ("buffer", "value"),
    [
        (torch.tensor([math.nan, 1.0]), 0.0),
        (torch.tensor([1.0, 1.0]), math.nan),
        (torch.tensor([1.0, 1.0]), 1.0 + 2**-20),
        (torch.tensor([1, 2]), 3),
        (torch.tensor([True, False]), False),
    ],
)
def test_a_buffer_that_changes_is_named(buffer, value):
    said = said_after(module_with(buffer), lambda mask: mask[0].fill_(value))
    assert [text.partition(" in its")[0] for text in said] == ["The model changes mask"]


def test_a_buffer_of_another_shape_has_changed():
    assert len(said_after(module_with(torch.ones(1)), lambda mask: mask.resize_(3))) == 1
