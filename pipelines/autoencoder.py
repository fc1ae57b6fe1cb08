"""A convolutional autoencoder on images in Parquet files: a workload whose metric is to be small.

python -m vrgd_ray.tune --pipeline pipelines.autoencoder --pipeline-args data=data/fashion_mnist
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pipelines._image_sources import SOURCES, convert_images
from pipelines._images import ImageFolder, Images
from pipelines._prepare import main, need
from vrgd_ray import Recipe

_EVALUATED_AT_ONCE = 500


class Autoencoder:
    """Images through a bottleneck of a few numbers and back, as in the noise-scale paper's generative domain.

    The labels are never read. The measure to hold it against is the same number of principal components, which is the
    best that a linear autoencoder can do. The margin, 3 % of the error, is a tenth of the distance to it.

    Args:
        data: folder or URI with the tables `train` and `test`; see `pipelines.image_classification`. The side of the
            images is a multiple of 4.
        latent: numbers an image is squeezed into.
        width: channels of the first convolution; the second has twice as many.
        subset: training images to keep, and at most that many for validation and test each.

    Raises:
        ConfigError: a table or a column is missing, or the images have another size.
    """

    metric = "mean_squared_error"
    mode = "min"
    pairable = True
    margin = "3%"
    reference = Recipe(optimizer="adamw", batch_size=128, lr=3e-3, epochs=10, weight_decay=0.0, warmup_fraction=0.05)

    def __init__(self, data: str = "", latent: int = 32, width: int = 16, subset: int | None = None) -> None:
        need(latent > 0 and width > 0, f"latent = {latent} and width = {width} must be above 0.")
        self._images = ImageFolder(data, subset, "autoencoder", labels=False)
        self._latent, self._width = latent, width
        self.num_train_samples = len(self._images.train_rows)
        side = self._images.shape[1]
        need(side % 4 == 0, f"the images in {data} are {side} pixels wide, which is no multiple of 4.")

    def build_model(self) -> nn.Module:
        """Two convolutions with stride 2 and a linear layer, and the same backwards."""
        channels, side, _ = self._images.shape
        width, quarter = self._width, side // 4
        return nn.Sequential(
            nn.Conv2d(channels, width, 3, 2, 1),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(2 * width * quarter**2, self._latent),
            nn.Linear(self._latent, 2 * width * quarter**2),
            nn.GELU(),
            nn.Unflatten(1, (2 * width, quarter, quarter)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.GELU(),
            nn.ConvTranspose2d(width, channels, 4, 2, 1),
        )

    def train_data(self) -> Images:
        """Nine tenths of the training table; pixels in 0..1."""
        return self._images.train(normalise=False)

    def validation_data(self) -> Images:
        """The tenth that is held out."""
        return self._images.validation(normalise=False)

    def test_data(self) -> Images:
        """The test table."""
        return self._images.test(normalise=False)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor]) -> torch.Tensor:
        """Mean squared error of a pixel."""
        (images,) = batch
        return F.mse_loss(model(images), images)

    def evaluate(self, model: nn.Module, data: Images) -> dict[str, float]:
        """Mean squared error of a pixel, in units of the range from black to white."""
        device = next(model.parameters()).device
        total = 0.0
        for first in range(0, len(data), _EVALUATED_AT_ONCE):
            (images,) = data[np.arange(first, min(first + _EVALUATED_AT_ONCE, len(data)))]
            images = images.to(device)
            total += F.mse_loss(model(images), images).item() * len(images)
        return {"mean_squared_error": total / len(data)}


if __name__ == "__main__":
    sys.exit(main("autoencoder", convert_images, SOURCES))
