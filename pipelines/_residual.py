"""Residual networks (arXiv 1512.03385): ResNet-20 and 56 for small images, ResNet-50 v1.5 for large ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Residual(nn.Module):
    """A branch beside a shortcut, summed and rectified.

    The shortcut is the identity, or a convolution where the shape changes.
    """

    def __init__(self, branch: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Of the same height and width, or of half where the stride is 2."""
        return torch.relu(self.branch(images) + self.shortcut(images))


def resnet_small(depth: int, channels: int, classes: int) -> nn.Module:
    """Three stages of (depth - 2) / 6 plain blocks with 16, 32 and 64 channels; 20 layers have 0.27 million weights."""
    stages = _stages(_plain_block, 16, [(16, 1), (32, 2), (64, 2)], [(depth - 2) // 6] * 3)
    return _initialised(nn.Sequential(*_convolution(channels, 16, 3), nn.ReLU(), *stages, *_head(64, classes)))


def resnet50(channels: int, classes: int) -> nn.Module:
    """Version 1.5, with the stride of a block in its 3 x 3 convolution; 25.6 million weights for 1,000 classes."""
    stages = _stages(_bottleneck, 64, [(256, 1), (512, 2), (1024, 2), (2048, 2)], [3, 4, 6, 3])
    stem = *_convolution(channels, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    return _initialised(nn.Sequential(*stem, *stages, *_head(2048, classes)))


def _stages(
    block: Callable[[int, int, int], Residual], inputs: int, stages: list[tuple[int, int]], counts: list[int]
) -> list[nn.Module]:
    blocks: list[nn.Module] = []
    for (outputs, stride), count in zip(stages, counts, strict=True):
        for number in range(count):
            blocks.append(block(inputs, outputs, 1 if number else stride))
            inputs = outputs
    return blocks


def _plain_block(inputs: int, outputs: int, stride: int) -> Residual:
    layers = *_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs, 3)
    return Residual(nn.Sequential(*layers), inputs, outputs, stride)


def _bottleneck(inputs: int, outputs: int, stride: int) -> Residual:
    narrow = outputs // 4
    reduce, middle = _convolution(inputs, narrow, 1), _convolution(narrow, narrow, 3, stride)
    layers = *reduce, nn.ReLU(), *middle, nn.ReLU(), *_convolution(narrow, outputs, 1)
    return Residual(nn.Sequential(*layers), inputs, outputs, stride)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def _head(features: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes)]


def _initialised(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
