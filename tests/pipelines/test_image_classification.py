"""Images: what crop and flip do, which networks there are, what is refused."""

import tracemalloc

import generated
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pipelines._residual import resnet50, resnet_small
from pipelines.image_classification import ImageClassification
from vrgd_ray import ConfigError, keyed_uniform


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(generated.images(tmp_path_factory.mktemp("images"), channels=3))


def test_crop_and_flip_are_a_window_of_the_bordered_image(folder):
    plain = ImageClassification(folder, crop=0, flip=False).train_data()
    data = ImageClassification(folder, crop=2).train_data()
    numbers, keys = np.arange(40), np.arange(40).astype(np.uint64) * 977
    changed, labels = data.augmented(numbers, keys)
    images, expected_labels = plain[numbers]
    black = data.batch(np.zeros((1, 3, 8, 8), np.uint8), np.zeros(1, int))[0][0]
    for number, draws in enumerate(keyed_uniform(keys, 3)):
        bordered = black[:, :1, :1].expand(3, 12, 12).clone()
        bordered[:, 2:10, 2:10] = images[number]
        down, right = int(draws[0] * 5), int(draws[1] * 5)
        window = bordered[:, down : down + 8, right : right + 8]
        assert torch.equal(changed[number], window.flip(2) if draws[2] < 0.5 else window)
    assert torch.equal(labels, expected_labels)


def test_without_crop_and_flip_nothing_is_augmented(folder):
    assert not hasattr(ImageClassification(folder, crop=0, flip=False).train_data(), "augmented")
    assert not hasattr(ImageClassification(folder).validation_data(), "augmented")
    flipped = (
        ImageClassification(folder, crop=0).train_data().augmented(np.zeros(50, int), np.arange(50, dtype=np.uint64))
    )
    assert len({image.numpy().tobytes() for image in flipped[0]}) == 2


def test_channels_are_normalised_over_the_training_images(folder):
    images, labels = ImageClassification(folder).train_data()[np.arange(630)]
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(images.std((0, 2, 3)), torch.ones(3), rtol=0, atol=1e-3)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64


def test_the_statistics_are_exact_and_need_the_memory_of_a_few_images(tmp_path):
    generated.images(tmp_path, sizes=(1500, 20), side=32, channels=3)
    folder = ImageClassification(str(tmp_path))._images
    pixels = folder._arrays["image"][folder.train_rows[np.arange(1350)]].reshape(1350, 3, -1)
    tracemalloc.start()
    mean, deviation = folder._statistics
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(mean.ravel(), pixels.mean((0, 2)) / 255, rtol=1e-12)
    np.testing.assert_allclose(deviation.ravel(), pixels.std((0, 2)) / 255 + 1e-6, rtol=1e-12)
    assert peak < pixels.nbytes / 2


def test_a_channel_that_is_constant_in_training_is_not_blown_up_elsewhere(tmp_path):
    for name, level in (("train", 7), ("test", 200)):
        pixels = generated.image_column(np.full((20, 64), level))
        generated.write(tmp_path, name, {"image": pixels, "label": np.arange(20) % 2})
    images, _ = ImageClassification(str(tmp_path)).test_data()[np.arange(20)]
    torch.testing.assert_close(images, torch.full_like(images, 193 / 255))


def test_the_loss_smooths_labels_and_the_metric_does_not(folder):
    pipeline = ImageClassification(folder, label_smoothing=0.2)
    torch.manual_seed(0)
    model, data = pipeline.build_model().eval(), pipeline.test_data()
    images, labels = data[np.arange(len(data))]
    logs = F.log_softmax(model(images), 1)
    target = F.one_hot(labels, 4) * 0.8 + 0.05
    torch.testing.assert_close(pipeline.loss(model, (images, labels)), -(target * logs).sum(1).mean())
    with torch.no_grad():
        found = pipeline.evaluate(model, data)
    assert found["loss"] == pytest.approx(F.nll_loss(logs, labels).item(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((logs.argmax(1) == labels).double().mean().item())


@pytest.mark.parametrize(
    ("model", "side", "published"), [(resnet_small(20, 3, 10), 32, 0.27e6), (resnet_small(56, 3, 10), 32, 0.85e6)]
)
def test_small_residual_networks_have_the_published_size(model, side, published):
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(published, rel=0.02)
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 in (20, 56)
    assert model(torch.zeros(2, 3, side, side)).shape == (2, 10)


def test_resnet50_is_version_1_5():
    model = resnet50(3, 1000)
    assert sum(p.numel() for p in model.parameters()) == 25_557_032
    strided = [m.kernel_size for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.stride == (2, 2)]
    assert sorted(strided) == [(1, 1)] * 3 + [(3, 3)] * 3 + [(7, 7)]
    shortcuts = {id(m) for n, m in model.named_modules() if "shortcut" in n}
    inside = [
        m for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.stride == (2, 2) and id(m) not in shortcuts
    ]
    assert (1, 1) not in {m.kernel_size for m in inside}, "the stride is in the 3 x 3 convolution"
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 1000)


@pytest.mark.parametrize("model", ["perceptron", "resnet8", "resnet20", "resnet50"])
def test_a_network_takes_a_step_on_the_data(folder, model):
    pipeline = ImageClassification(folder, model=model)
    network, data = pipeline.build_model(), pipeline.train_data()
    pipeline.loss(network, data.augmented(np.arange(8), np.arange(8, dtype=np.uint64))).backward()
    assert all(p.grad is not None for p in network.parameters())


def test_a_subset_is_the_same_for_everyone_and_leaves_the_splits_apart(folder):
    first, second = ImageClassification(folder, subset=50), ImageClassification(folder, subset=50)
    assert [len(d) for d in (first.train_data(), first.validation_data(), first.test_data())] == [50, 50, 50]
    assert torch.equal(first.train_data()[np.arange(50)][0], second.train_data()[np.arange(50)][0])
    whole = {
        image.numpy().tobytes() for image in ImageClassification(folder, crop=0).validation_data()[np.arange(70)][0]
    }
    assert not whole & {image.numpy().tobytes() for image in first.train_data()[np.arange(50)][0]}


def pixels(folder, size, name="train"):
    generated.write(folder, name, {"image": generated.image_column(np.zeros((20, size))), "label": np.zeros(20, int)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "data = FOLDER is needed.*make it with: python -m pipelines.image_classification prepare"),
        ({"data": "gone"}, r"neither gone/train.parquet nor .* prepare --source DOWNLOADED --output gone"),
        ({"model": "resnet21"}, "must be one of small_cnn, perceptron, resnet8, resnet20, resnet56, resnet50"),
        ({"subset": 0}, "subset = 0 must be above 0"),
        ({"crop": -1}, "crop = -1"),
        ({"crop": 100}, r"crop = 100 must be below the images' \d+ pixels"),
        ({"label_smoothing": 1.0}, "label_smoothing = 1.0"),
    ],
)
def test_bad_arguments_are_refused(folder, arguments, message):
    with pytest.raises(ConfigError, match=message):
        ImageClassification(**({"data": folder} | arguments if arguments else {}))


def test_bad_tables_are_refused(tmp_path):
    pixels(tmp_path, 10)
    pixels(tmp_path, 10, "test")
    with pytest.raises(ConfigError, match="10 values: no square of 1 or 3 channels"):
        ImageClassification(str(tmp_path))
    generated.write(tmp_path, "train", {"image": [b"png"] * 20, "label": [0] * 20})
    with pytest.raises(ConfigError, match=r"image in the table .* is binary, not a fixed_size_list<uint8>"):
        ImageClassification(str(tmp_path))
    generated.write(tmp_path, "train", {"image": [b"png"] * 20})
    with pytest.raises(ConfigError, match=r"lacks label \(it has image\); make it with"):
        ImageClassification(str(tmp_path))


def tables(folder, train_side=8, test_side=8, labels=(0, 1, 2, 3), test_labels=None):
    for name, side, chosen in (("train", train_side, labels), ("test", test_side, test_labels or labels)):
        pixels = generated.image_column(np.zeros((40, side * side)))
        generated.write(folder, name, {"image": pixels, "label": list(chosen) * (40 // len(chosen))})
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_side": 12}, r"shape \(1, 8, 8\) in train and \(1, 12, 12\) in test"),
        ({"train_side": 2, "test_side": 2}, "are 2 pixels wide; 4 are the least"),
        ({"labels": (-1, 0)}, "a label is below 0"),
        ({"labels": (0, 1_000_000)}, "label 1000000 is a class too many for 40 images"),
        ({"labels": (0.5, 1.5)}, "holds double, not whole numbers"),
    ],
)
def test_tables_that_do_not_fit_are_refused_before_training(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        ImageClassification(tables(tmp_path, **changes)).build_model()


def test_a_class_of_the_test_table_alone_has_an_output_too(tmp_path):
    model = ImageClassification(tables(tmp_path, test_labels=(0, 6))).build_model()
    assert model[-1].out_features == 7
