"""Parts that `build_model` froze in eval mode stay frozen, through training and evaluations."""

import pytest
import torch
from torch import nn
from workloads import NormedBlobs

from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.modes import begin_training, evaluating


class FrozenNorm(NormedBlobs):
    """Batch normalisation with given statistics, which training leaves alone."""

    def build_model(self):
        model = super().build_model()
        model[1].running_mean.fill_(0.5)
        model[1].eval()
        return model

    def loss(self, model, batch):
        assert model.training
        assert not model[1].training
        return super().loss(model, batch)


def begun(module):
    said = []
    begin_training(module, said.append)
    return said


def small():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()), nn.Dropout())


def test_a_frozen_layer_stays_frozen_through_training_and_evaluations():
    run = TrainingRun(FrozenNorm(), FrozenNorm.reference, LocalContext())
    run.run("test")
    assert run.module[1].running_mean.tolist() == [0.5] * 8
    assert int(run.module[1].num_batches_tracked) == 0
    assert run.module.training
    assert not run.module[1].training


def test_frozen_parts_are_named_without_their_own_parts():
    model = small()
    assert begun(model) == []
    model[1].eval()
    assert begun(model) == ["Parts of the model stay in eval mode: 1."]
    model[2].eval()
    assert begun(model) == ["Parts of the model stay in eval mode: 1, 2."]
    (many,) = begun(nn.Sequential(*[nn.Dropout().eval() for _ in range(5)]))
    assert many.endswith(": 0, 1, 2 and 2 more.")


def test_a_model_in_eval_mode_as_a_whole_is_trained():
    model = small().eval()
    assert begun(model) == []
    assert all(part.training for part in model.modules())


def test_an_evaluation_gives_every_part_its_mode_back():
    model = small()
    model[1].eval()
    with evaluating(model):
        assert not any(part.training for part in model.modules())
        assert not torch.is_grad_enabled()
        model[0].train()
    assert [part.training for part in model] == [True, False, True]
    assert [part.training for part in model[1]] == [False, False]
    assert torch.is_grad_enabled()


def test_an_error_in_an_evaluation_leaves_the_modes_too():
    model = small()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert model[0].training


class Merging(nn.Linear):
    """Does work when its mode changes, as low-rank adapters that merge into the weight for evaluation."""

    merged = False

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


class FreezingItself(nn.Sequential):
    """Keeps its normalisation frozen by a `train` of its own."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def test_the_train_of_a_layer_is_called_before_and_after_an_evaluation():
    model = nn.Sequential(Merging(2, 2), Merging(2, 2).eval())
    begun(model)
    assert [part.merged for part in model] == [False, True]
    with evaluating(model):
        assert [part.merged for part in model] == [True, True]
    assert [part.merged for part in model] == [False, True]


def test_a_model_that_freezes_parts_by_its_own_train_does_so_from_the_start():
    model = FreezingItself(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert begun(model) == ["Parts of the model stay in eval mode: 1."]
    with evaluating(model):
        pass
    assert [part.training for part in model.modules()] == [True, True, False]
