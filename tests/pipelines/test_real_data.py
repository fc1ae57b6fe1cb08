"""The pipelines on the real tables; each seconds long, on subsets."""

import os
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from benchmarks.reading import measure
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train

pytestmark = pytest.mark.data
DATA = Path(os.environ.get("VRGD_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def opened(name, folder, **arguments):
    return load_pipeline(f"pipelines.{name}", {"data": str(DATA / folder), **arguments})


def trained(pipeline, **changes):
    return train(
        pipeline, pipeline.reference.with_values(**changes), LocalContext(), split="test", evaluations=1
    ).metrics


def test_fashion_mnist_is_split_and_normalised():
    pipeline = opened("image_classification", "fashion_mnist")
    assert (pipeline.num_train_samples, len(pipeline.validation_data()), len(pipeline.test_data())) == (
        54_000,
        6000,
        10_000,
    )
    images, labels = pipeline.train_data()[np.arange(5000)]
    assert images.mean().abs() < 0.02
    assert abs(images.std() - 1) < 0.02
    assert set(labels.tolist()) == set(range(10))


def test_a_few_images_train_the_small_network():
    assert trained(opened("image_classification", "fashion_mnist", subset=4000), epochs=4)["accuracy"] > 0.72


def test_a_few_images_train_the_autoencoder():
    assert trained(opened("autoencoder", "fashion_mnist", subset=4000), epochs=4)["mean_squared_error"] < 0.05


def test_census_income_has_7_numbers_and_33_categories():
    batch = opened("click_through", "census_income", subset=100).train_data()[np.arange(100)]
    assert batch["numbers"].shape == (100, 7)
    assert batch["categories"].shape == (100, 33)


def test_some_rows_train_dlrm():
    assert trained(opened("click_through", "census_income", subset=30_000))["auc"] > 0.9


def test_some_documents_train_bert(tmp_path):
    documents = parquet.read_table(DATA / "linux_docs/documents.parquet").slice(0, 120)
    parquet.write_table(documents, tmp_path / "documents.parquet")
    arguments = {"data": str(tmp_path), "vocabulary": 4096, "length": 64, "subset": 256}
    pipeline = load_pipeline("pipelines.masked_language_model", arguments)
    assert pipeline.num_train_samples == 256
    assert trained(pipeline, epochs=2, batch_size=32)["perplexity"] < 1500  # 4096 entries to choose from


@pytest.mark.parametrize(
    ("name", "folder"),
    [("image_classification", "fashion_mnist"), ("autoencoder", "fashion_mnist"), ("click_through", "census_income")],
)
def test_reading_is_ten_times_faster_than_training(name, folder):
    assert measure(opened(name, folder)).ratio > 10
