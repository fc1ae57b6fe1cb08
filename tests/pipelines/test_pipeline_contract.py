"""What every pipeline of the package must keep; a pipeline of your own can be held against it by adding its name."""

import inspect
import pickle

import numpy as np
import pytest
import torch

from vrgd_ray import Pipeline
from vrgd_ray.optim.registry import base_of, hyperparameters
from vrgd_ray.pipeline import available_pipelines, load_pipeline
from vrgd_ray.training.budget import check_fits
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train

NAMES = available_pipelines()
QUICK_EPOCHS = 3


@pytest.fixture(scope="module", params=NAMES)
def pipeline(request):
    return load_pipeline(request.param)


def built(pipeline, seed=0):
    torch.manual_seed(seed)
    return pipeline.build_model()


def splits(pipeline):
    return [pipeline.train_data(), pipeline.validation_data(), pipeline.test_data()]


def evaluated(pipeline, model, data):
    model.eval()
    with torch.no_grad():
        return pipeline.evaluate(model, data)


def equal(first, second):
    """Whether two batches of tensors, tuples, lists and dicts hold the same numbers."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    return len(first) == len(second) and all(equal(a, b) for a, b in zip(first, second, strict=True))


def rows(data):
    """Every sample as bytes, so that splits can be compared."""
    batch = data[np.arange(len(data))]
    columns = [tensor.reshape(len(data), -1).double() for tensor in batch]
    return [row.numpy().tobytes() for row in torch.cat(columns, dim=1)]


def test_the_package_brings_pipelines():
    assert {"pipelines.digits", "pipelines.linear_regression"} <= set(NAMES)


def test_it_follows_the_protocol_and_explains_itself(pipeline):
    assert isinstance(pipeline, Pipeline)
    assert inspect.getdoc(type(pipeline))
    assert inspect.getdoc(inspect.getmodule(type(pipeline)))


def test_the_reference_is_a_base_optimizer_that_fits_the_data(pipeline):
    reference = pipeline.reference
    assert base_of(reference.optimizer) == reference.optimizer
    assert "lr" in hyperparameters(reference.optimizer)
    check_fits(reference, pipeline.num_train_samples, num_workers=1)


def test_the_margin_is_a_loss_one_could_accept(pipeline):
    assert getattr(pipeline, "margin", 0.0) >= 0.0


def test_the_same_seed_builds_the_same_model(pipeline):
    assert equal(built(pipeline).state_dict(), built(pipeline).state_dict())


def test_num_train_samples_is_the_length_of_the_training_data(pipeline):
    assert len(pipeline.train_data()) == pipeline.num_train_samples


def test_data_is_indexed_by_an_array_of_sample_numbers_in_any_order(pipeline):
    for data in splits(pipeline):
        last = len(data) - 1
        few = data[np.array([last, 0, 3, 3])]
        single = [data[np.array([i])] for i in (last, 0, 3, 3)]
        joined = [torch.cat(parts) for parts in zip(*single, strict=True)]
        assert equal(list(few), joined)


def test_data_is_the_same_for_everyone(pipeline):
    again = load_pipeline(f"{type(pipeline).__module__}:{type(pipeline).__name__}")
    for first, second in zip(splits(pipeline), splits(again), strict=True):
        some = np.arange(0, len(first), 7)
        assert equal(first[some], second[some])


def test_the_splits_share_no_sample(pipeline):
    train_rows, validation_rows, test_rows = (set(rows(data)) for data in splits(pipeline))
    assert not train_rows & validation_rows
    assert not train_rows & test_rows
    assert not validation_rows & test_rows


def test_the_loss_is_a_scalar_and_the_mean_over_the_batch(pipeline):
    model, data = built(pipeline), pipeline.train_data()
    whole, first, second = (
        pipeline.loss(model, data[numbers]) for numbers in (np.arange(64), np.arange(32), np.arange(32, 64))
    )
    assert whole.ndim == 0
    assert whole.requires_grad
    torch.testing.assert_close(whole, (first + second) / 2)
    assert not torch.isclose(first, second)


def test_the_loss_reaches_every_parameter(pipeline):
    model = built(pipeline)
    pipeline.loss(model, pipeline.train_data()[np.arange(64)]).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)


def test_evaluate_returns_the_metric_among_finite_floats(pipeline):
    for data in splits(pipeline)[1:]:
        metrics = evaluated(pipeline, built(pipeline), data)
        assert pipeline.metric in metrics
        assert all(isinstance(value, float) and np.isfinite(value) for value in metrics.values())


def test_evaluate_changes_nothing(pipeline):
    model = built(pipeline)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = evaluated(pipeline, model, pipeline.validation_data())
    assert equal(model.state_dict(), before)
    assert evaluated(pipeline, model, pipeline.validation_data()) == first


def test_it_travels_to_another_process(pipeline):
    copy = pickle.loads(pickle.dumps(pipeline))
    assert equal(copy.train_data()[np.arange(8)], pipeline.train_data()[np.arange(8)])
    assert copy.reference == pipeline.reference


def test_the_reference_beats_the_untrained_model_at_once(pipeline):
    recipe = pipeline.reference.with_values(epochs=QUICK_EPOCHS)
    trained = train(pipeline, recipe, LocalContext()).metrics[pipeline.metric]
    untrained = evaluated(pipeline, built(pipeline), pipeline.validation_data())[pipeline.metric]
    assert trained > 2 * untrained if pipeline.mode == "max" else trained < untrained / 2
