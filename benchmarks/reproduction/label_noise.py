"""Image classification with wrong labels: where a scale that shrinks noisy elements should help."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pipelines.image_classification import ImageClassification
from vrgd_ray.pipeline import Data


class NoisyLabels:
    """Training data, some labels of which are replaced; the same ones for every seed and batch size.

    Args:
        data: images and labels.
        share: labels that are replaced by a class drawn uniformly, 0..1; one in `num_classes` of these stays right.
        num_classes: classes to draw from.
    """

    def __init__(self, data: Data, share: float, num_classes: int) -> None:
        draws = np.random.default_rng(0)
        self._data = data
        self._replaced = torch.from_numpy(draws.random(len(data)) < share)
        self._classes = torch.from_numpy(draws.integers(num_classes, size=len(data)))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, indices: np.ndarray[Any, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self._data[indices]
        places = torch.from_numpy(indices)
        return images, torch.where(self._replaced[places], self._classes[places], labels)


class NoisyImageClassification(ImageClassification):
    """Images that are neither moved nor mirrored, with hard labels, a share of which is wrong in training.

    label_noise: share of `NoisyLabels`. arguments: those of `ImageClassification`.
    """

    def __init__(self, label_noise: float, **arguments: Any) -> None:
        super().__init__(**arguments, label_smoothing=0.0, crop=0, flip=False)
        self._label_noise = label_noise

    def train_data(self) -> NoisyLabels:  # type: ignore[override]
        """Nine tenths of the training table; validation and test keep their labels."""
        return NoisyLabels(super().train_data(), self._label_noise, self._images.num_classes)
