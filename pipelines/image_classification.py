"""Classification of images in Parquet files: Fashion-MNIST, CIFAR-10, or folders of files as large as ImageNet.

python -m pipelines.image_classification prepare --source downloads --output data/fashion_mnist
python -m vrgd_ray.tune --pipeline pipelines.image_classification --pipeline-args data=data/fashion_mnist
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
from pipelines._residual import resnet50, resnet_small
from vrgd_ray import Recipe

_RECIPES = {
    "small_cnn": Recipe(
        optimizer="sgd", batch_size=128, lr=0.05, epochs=12, momentum=0.9, weight_decay=5e-4, warmup_fraction=0.05
    ),
    "perceptron": Recipe(
        optimizer="sgd", batch_size=128, lr=0.05, epochs=8, momentum=0.9, weight_decay=5e-4, warmup_fraction=0.05
    ),
    "resnet8": Recipe(
        optimizer="sgd", batch_size=64, lr=0.1, epochs=10, momentum=0.9, weight_decay=5e-4, warmup_fraction=0.1
    ),
    # arXiv 1512.03385, with a cosine instead of steps.
    "resnet20": Recipe(
        optimizer="sgd", batch_size=128, lr=0.1, epochs=160, momentum=0.9, weight_decay=1e-4, warmup_fraction=0.03
    ),
    "resnet56": Recipe(
        optimizer="sgd", batch_size=128, lr=0.1, epochs=160, momentum=0.9, weight_decay=1e-4, warmup_fraction=0.03
    ),
    # arXiv 1706.02677.
    "resnet50": Recipe(
        optimizer="sgd", batch_size=256, lr=0.1, epochs=90, momentum=0.9, weight_decay=1e-4, warmup_fraction=0.06
    ),
}
_EVALUATED_AT_ONCE = 500
_SMALLEST_SIDE = 4


class ImageClassification:
    """Images into classes: label smoothing, crop and flip, warm-up and a cosine to zero (arXiv 2309.13681, section 6).

    Crop and flip depend on (seed, epoch, image) alone, so the same seed trains on the same images whatever the batch
    size and the number of workers: seeds can be paired. A tenth of the training table is held out for validation.

    The margin is half a point of accuracy, a small part of what separates published networks of one size.

    Args:
        data: folder or URI with the tables `train` and `test`: `image`, fixed_size_list<uint8> of a square image with 1
            or 3 channels (channels first), and `label`, a whole number from 0.
        model: "small_cnn" (two convolutions, no batch normalisation), "perceptron" (one hidden layer) or "resnet8" (8
            layers over images of half the size) for CPUs, "resnet20" or "resnet56" for images of 32 pixels or so,
            "resnet50" for large ones. The reference recipe follows from it.
        subset: training images to keep, and at most that many for validation and test each.
        label_smoothing: share of the target spread over all classes, 0..1, in training.
        crop: pixels an image is moved at most, each way; below its width.
        flip: whether half of the images are mirrored; not for digits and letters.

    Raises:
        ConfigError: a table, a column or the model is missing; the message has the command that makes the tables.
    """

    metric = "accuracy"
    mode = "max"
    pairable = True
    margin = 0.005

    def __init__(
        self,
        data: str = "",
        model: str = "small_cnn",
        subset: int | None = None,
        label_smoothing: float = 0.1,
        crop: int = 2,
        flip: bool = True,
    ) -> None:
        need(model in _RECIPES, f"model = {model!r} must be one of {', '.join(_RECIPES)}.")
        need(0 <= label_smoothing < 1, f"label_smoothing = {label_smoothing} must be at least 0 and below 1.")
        need(crop >= 0, f"crop = {crop} must be at least 0.")
        self._images = ImageFolder(data, subset, "image_classification")
        side = self._images.shape[1]
        need(side >= _SMALLEST_SIDE, f"the images in {data} are {side} pixels wide; {_SMALLEST_SIDE} are the least.")
        need(crop < side, f"crop = {crop} must be below the images' {side} pixels.")
        self._model, self._label_smoothing, self._crop, self._flip = model, label_smoothing, crop, flip
        self.num_train_samples = len(self._images.train_rows)
        self.reference = _RECIPES[model]

    def build_model(self) -> nn.Module:
        """The chosen network for the size and the classes of the data."""
        channels, side, _ = self._images.shape
        classes = self._images.num_classes
        if self._model == "small_cnn":
            return small_cnn(channels, side, classes)
        if self._model == "perceptron":
            return nn.Sequential(nn.Flatten(), nn.Linear(channels * side**2, 128), nn.ReLU(), nn.Linear(128, classes))
        if self._model == "resnet8":
            return nn.Sequential(nn.AvgPool2d(2), resnet_small(8, channels, classes))
        if self._model == "resnet50":
            return resnet50(channels, classes)
        return resnet_small(int(self._model.removeprefix("resnet")), channels, classes)

    def train_data(self) -> Images:
        """Nine tenths of the training table, augmented."""
        return self._images.train(normalise=True, crop=self._crop, flip=self._flip)

    def validation_data(self) -> Images:
        """The tenth that is held out."""
        return self._images.validation(normalise=True)

    def test_data(self) -> Images:
        """The test table."""
        return self._images.test(normalise=True)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Mean cross-entropy with smoothed labels."""
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=self._label_smoothing)

    def evaluate(self, model: nn.Module, data: Images) -> dict[str, float]:
        """Top-1 accuracy and mean cross-entropy, without smoothing."""
        device = next(model.parameters()).device
        correct, loss = 0, 0.0
        for first in range(0, len(data), _EVALUATED_AT_ONCE):
            batch = data[np.arange(first, min(first + _EVALUATED_AT_ONCE, len(data)))]
            images, labels = (tensor.to(device) for tensor in batch)
            logits = model(images)
            correct += int((logits.argmax(1) == labels).sum())
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
        return {"accuracy": correct / len(data), "loss": loss / len(data)}


def small_cnn(channels: int, side: int, classes: int) -> nn.Module:
    """Two convolutions with pooling and two linear layers; 206,922 weights for Fashion-MNIST."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


if __name__ == "__main__":
    sys.exit(main("image_classification", convert_images, SOURCES))
