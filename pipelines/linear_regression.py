"""Linear regression on generated data (arXiv 2309.13681, section 6). The template for a pipeline of your own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from vrgd_ray import Recipe, TensorData


class LinearRegression:
    """Ten weights, 1 to 10, to be found from y = x . w + noise with x uniform in (0, 1)."""

    metric = "mean_squared_error"
    mode = "min"
    pairable = True
    margin = 0.05
    reference = Recipe(optimizer="sgd", batch_size=64, lr=0.02, epochs=10, schedule="constant", momentum=0.9)

    def __init__(self, num_train_samples: int = 8192, noise: float = 1.0) -> None:
        self.num_train_samples = num_train_samples
        self.noise = noise

    def build_model(self) -> nn.Module:
        """One linear layer that starts at zero."""
        model = nn.Linear(10, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def train_data(self) -> TensorData:
        """Samples the weights are fitted to."""
        return self._generate(self.num_train_samples, seed=1)

    def validation_data(self) -> TensorData:
        """Samples the hyper-parameters are chosen on."""
        return self._generate(4096, seed=2)

    def test_data(self) -> TensorData:
        """Samples the verdict is read on."""
        return self._generate(4096, seed=3)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Mean squared error over the batch."""
        inputs, targets = batch
        return F.mse_loss(model(inputs), targets)

    def evaluate(self, model: nn.Module, data: TensorData) -> dict[str, float]:
        """Mean squared error over all the data; noise ** 2 is the least that can be reached."""
        device = next(model.parameters()).device
        inputs, targets = (tensor.to(device) for tensor in data.tensors)
        return {"mean_squared_error": F.mse_loss(model(inputs), targets).item()}

    def _generate(self, size: int, seed: int) -> TensorData:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.rand(size, 10, generator=generator)
        noise = self.noise * torch.randn(size, 1, generator=generator)
        return TensorData(inputs, inputs @ torch.arange(1.0, 11.0).unsqueeze(1) + noise)
