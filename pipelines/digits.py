"""Handwritten digits, scikit-learn's bundled 8x8 images, and a small perceptron. The default; needs no download."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from vrgd_ray import Recipe, TensorData

_SPLIT_SEED = 1797


class Digits:
    """1,797 images of 64 pixels in ten classes, split 1,149 / 288 / 360 the same way for everyone."""

    metric = "accuracy"
    mode = "max"
    num_train_samples = 1149
    pairable = True
    margin = 0.01
    reference = Recipe(optimizer="adamw", batch_size=32, lr=3e-3, epochs=30, weight_decay=0.01, warmup_fraction=0.05)

    def build_model(self) -> nn.Module:
        """Perceptron 64-128-128-10 with ReLU, 26,122 parameters."""
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def train_data(self) -> TensorData:
        """First part of the fixed split."""
        return self._splits[0]

    def validation_data(self) -> TensorData:
        """Second part of the fixed split."""
        return self._splits[1]

    def test_data(self) -> TensorData:
        """Last part of the fixed split."""
        return self._splits[2]

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Mean cross-entropy."""
        images, labels = batch
        return F.cross_entropy(model(images), labels)

    def evaluate(self, model: nn.Module, data: TensorData) -> dict[str, float]:
        """Accuracy and cross-entropy over the whole split."""
        device = next(model.parameters()).device
        images, labels = (tensor.to(device) for tensor in data.tensors)
        logits = model(images)
        accuracy = (logits.argmax(1) == labels).double().mean().item()
        return {"accuracy": accuracy, "loss": F.cross_entropy(logits, labels).item()}

    @cached_property
    def _splits(self) -> tuple[TensorData, TensorData, TensorData]:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
        x = torch.as_tensor(images[order] / 16.0, dtype=torch.float32)
        y = torch.as_tensor(labels[order], dtype=torch.int64)
        return (
            TensorData(x[:1149], y[:1149]),
            TensorData(x[1149:1437], y[1149:1437]),
            TensorData(x[1437:], y[1437:]),
        )
