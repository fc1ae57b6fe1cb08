"""The fingerprint tells data apart, and says nothing where there is nothing to compare."""

import random

import numpy as np
import torch
from workloads import Blobs

from vrgd_ray.training.fingerprint import data_fingerprint


class Changed(Blobs):
    """Blobs with another validation or test set."""

    def __init__(self, split="", change=None):
        super().__init__()
        self.split, self.change = split, change or (lambda tensors: tensors)

    def _draw(self, size, seed):
        data = super()._draw(size, seed)
        return self.change(data) if self.split == {1: "train", 2: "validation", 3: "test"}[seed] else data


def shift_first(data):
    data.tensors[0][0] += 1e-3
    return data


def relabel_last(data):
    data.tensors[1][-1] += 1
    return data


def test_the_same_data_has_the_same_fingerprint_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    assert data_fingerprint(Blobs()) == data_fingerprint(Changed())
    assert len(data_fingerprint(Blobs())) == 16
    assert torch.equal(before, torch.get_rng_state())


def test_every_split_its_size_its_type_and_its_labels_count():
    changed = [
        Changed(split, change) for split in ("train", "validation", "test") for change in (shift_first, relabel_last)
    ]
    pipelines = [Blobs(), Blobs(num_train_samples=248), Blobs(dtype="float64"), *changed]
    assert len({data_fingerprint(pipeline) for pipeline in pipelines}) == len(pipelines)


class Listed:
    """Data whose batches are whatever `make` returns for an array of sample numbers."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 40

    def __getitem__(self, indices):
        return self.make(indices)


def of_data(make):
    pipeline = Blobs()
    pipeline.train_data = lambda: Listed(make)
    return data_fingerprint(pipeline)


def test_nested_batches_of_arrays_and_words_are_read_to_the_bottom():
    def batch(word="a", value=1.0):
        return lambda indices: {"x": [np.full(3, value, dtype=np.float32), (word, None)], "y": torch.tensor(2)}

    assert of_data(batch()) == of_data(batch())
    assert len({of_data(batch()), of_data(batch(word="b")), of_data(batch(value=2.0))}) == 3


def test_arrays_of_objects_count_by_what_they_hold_and_not_by_where_it_lies():
    def texts(*words):
        return lambda indices: np.array(["".join(word) for word in words], dtype=object)

    assert of_data(texts("ab", "c")) == of_data(texts("ab", "c")) != of_data(texts("ab", "d"))


def test_augmentation_by_torch_is_keyed_and_by_others_gives_none():
    assert of_data(lambda indices: torch.rand(len(indices))) is not None
    assert of_data(lambda indices: [random.random()]) is None


def test_data_that_cannot_be_read_here_gives_none():
    def missing(indices):
        raise FileNotFoundError("no such file")

    assert of_data(missing) is None
