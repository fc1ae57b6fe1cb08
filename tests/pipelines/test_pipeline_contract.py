"""What every pipeline of the package must keep; a pipeline of your own can be held against it by adding its name."""

import inspect
import pickle

import numpy as np
import pytest
import torch
from generated import MAKERS

from vrgd_ray import Pipeline
from vrgd_ray.optim.registry import base_of, hyperparameters
from vrgd_ray.pipeline import PipelineSource, available_pipelines, load_pipeline
from vrgd_ray.training.budget import check_fits
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.execution import Execution
from vrgd_ray.training.loop import TrainingRun, train
from vrgd_ray.training.memory import has_batch_statistics

NAMES = available_pipelines()
QUICK_EPOCHS = {"pipelines.image_classification": 12, "pipelines.autoencoder": 30}
"""The generated data is small, so that several epochs are few steps; 3 for the others."""


@pytest.fixture(scope="module", params=NAMES)
def source(request, tmp_path_factory):
    """Name and arguments; those that read files read generated ones."""
    arguments = {}
    if request.param in MAKERS:
        make, arguments = MAKERS[request.param]
        arguments = {"data": str(make(tmp_path_factory.mktemp("data"))), **arguments}
    return PipelineSource.here(request.param, arguments)


@pytest.fixture(scope="module")
def pipeline(source):
    return load_pipeline(source.name, source.arguments)


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


def parts(batch):
    """The tensors of a batch."""
    return list(batch.values() if isinstance(batch, dict) else batch)


def rows(data):
    """Every sample as bytes, so that splits can be compared."""
    batch = data[np.arange(len(data))]
    columns = [tensor.reshape(len(data), -1).double() for tensor in parts(batch)]
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
    assert float(str(getattr(pipeline, "margin", 0.0)).removesuffix("%")) >= 0.0


def test_the_same_seed_builds_the_same_model(pipeline):
    assert equal(built(pipeline).state_dict(), built(pipeline).state_dict())


def test_num_train_samples_is_the_length_of_the_training_data(pipeline):
    assert len(pipeline.train_data()) == pipeline.num_train_samples


def test_data_is_indexed_by_an_array_of_sample_numbers_in_any_order(pipeline):
    for data in splits(pipeline):
        last = len(data) - 1
        few = data[np.array([last, 0, 3, 3])]
        single = [data[np.array([i])] for i in (last, 0, 3, 3)]
        joined = [torch.cat(tensors) for tensors in zip(*map(parts, single), strict=True)]
        assert equal(parts(few), joined)


def test_data_is_the_same_for_everyone(pipeline, source):
    again = load_pipeline(f"{type(pipeline).__module__}:{type(pipeline).__name__}", source.arguments)
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


def test_workers_open_it_by_its_source(pipeline, source):
    opened = pickle.loads(pickle.dumps(source)).open()
    assert opened.num_train_samples == pipeline.num_train_samples
    assert equal(opened.validation_data()[np.arange(4)], pipeline.validation_data()[np.arange(4)])


def test_a_key_gives_the_same_sample_in_any_batch(pipeline):
    data = pipeline.train_data()
    if not hasattr(data, "augmented"):
        pytest.skip("not augmented")
    numbers, keys = np.array([5, 0, 5, 9]), np.array([17, 2**63, 3, 17], np.uint64)
    together = parts(data.augmented(numbers, keys))
    alone = [parts(data.augmented(numbers[i : i + 1], keys[i : i + 1])) for i in range(4)]
    assert equal(together, [torch.cat(tensors) for tensors in zip(*alone, strict=True)])


def test_keys_change_the_sample(pipeline):
    data = pipeline.train_data()
    if not hasattr(data, "augmented"):
        pytest.skip("not augmented")
    drawn = [parts(data.augmented(np.array([5]), np.array([key], np.uint64)))[0] for key in range(20)]
    assert len({tensor.numpy().tobytes() for tensor in drawn}) > 5


class CutShort:
    """The first samples of some data."""

    def __init__(self, data, size):
        self.data, self.size, self.tensors = data, size, [t[:size] for t in getattr(data, "tensors", ())]

    def __len__(self):
        return self.size

    def __getitem__(self, indices):
        return self.data[indices]


def test_evaluation_counts_every_sample_alike(pipeline, monkeypatch):
    """Cut into chunks with an odd remainder or not at all, a metric over all the data is the same."""
    model, data = built(pipeline), CutShort(pipeline.test_data(), 37)
    whole = evaluated(pipeline, model, data)
    module = inspect.getmodule(type(pipeline))
    if hasattr(module, "_EVALUATED_AT_ONCE"):
        monkeypatch.setattr(module, "_EVALUATED_AT_ONCE", 10)
    assert evaluated(pipeline, model, data) == pytest.approx(whole, rel=1e-5)
    monkeypatch.setattr(module, "_EVALUATED_AT_ONCE", 1, raising=False)
    assert evaluated(pipeline, model, data) == pytest.approx(whole, rel=1e-5)


def test_groups_in_one_pass_or_in_several_train_the_same_model(pipeline):
    if has_batch_statistics(built(pipeline)):
        pytest.skip("batch normalisation")
    runs = []
    for limit in (None, 3):
        # SGD: Adam turns the rounding of a gradient near zero into a step of full length.
        recipe = pipeline.reference.with_values(optimizer="sgd", lr=0.01, batch_size=64, epochs=1, warmup_fraction=0.0)
        execution = Execution(max_samples_per_pass=limit, deterministic=True)
        runs.append(TrainingRun(pipeline, recipe, LocalContext(), execution=execution))
        for _ in range(3):
            runs[-1].train_step()
    for first, second in zip(*(run.module.parameters() for run in runs), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_the_reference_beats_the_untrained_model_at_once(pipeline, source):
    recipe = pipeline.reference.with_values(epochs=QUICK_EPOCHS.get(source.name, 3))
    trained = train(pipeline, recipe, LocalContext()).metrics[pipeline.metric]
    untrained = evaluated(pipeline, built(pipeline), pipeline.validation_data())[pipeline.metric]
    if pipeline.mode == "max":  # every such metric here is 1 at best
        trained, untrained = 1 - trained, 1 - untrained
    assert trained < untrained / 2
