"""Labels that are wrong: how many, and the same ones whoever asks."""

import numpy as np
import pytest
import torch

from benchmarks.reproduction.label_noise import NoisyImageClassification, NoisyLabels
from tests.pipelines import generated


class Plain:
    """10,000 samples of class 3."""

    def __len__(self):
        return 10_000

    def __getitem__(self, indices):
        return torch.from_numpy(indices), torch.full((len(indices),), 3)


def test_a_share_of_the_labels_is_replaced_by_any_class():
    images, labels = NoisyLabels(Plain(), 0.4, 10)[np.arange(10_000)]
    counts = torch.bincount(labels, minlength=10) / 10_000
    assert counts[3] == pytest.approx(0.6 + 0.04, abs=0.02)
    assert counts[[0, 1, 2, 4, 5, 6, 7, 8, 9]].numpy() == pytest.approx(np.full(9, 0.04), abs=0.01)
    assert torch.equal(images, torch.arange(10_000))


def test_a_sample_has_the_same_label_in_every_batch():
    data, again = NoisyLabels(Plain(), 0.4, 10), NoisyLabels(Plain(), 0.4, 10)
    _, labels = data[np.arange(10_000)]
    chosen = np.array([17, 9999, 3, 17])
    assert torch.equal(again[chosen][1], labels[torch.from_numpy(chosen)])


def test_only_training_labels_are_wrong(tmp_path):
    maker, _ = generated.MAKERS["pipelines.image_classification"]
    data = str(maker(tmp_path, (400, 100)))
    noisy = NoisyImageClassification(label_noise=0.4, data=data, model="perceptron")
    right = NoisyImageClassification(label_noise=0.0, data=data, model="perceptron")

    def wrong(part, size):
        rows = np.arange(size)
        return int((getattr(noisy, part)()[rows][1] != getattr(right, part)()[rows][1]).sum())

    classes = noisy.build_model()[-1].out_features
    assert wrong("train_data", 360) == pytest.approx(360 * 0.4 * (1 - 1 / classes), abs=25)
    assert (wrong("validation_data", 40), wrong("test_data", 100)) == (0, 0)
