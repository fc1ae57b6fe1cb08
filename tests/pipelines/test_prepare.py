"""`python -m pipelines.NAME prepare`: public files become the Parquet that the pipeline reads."""

import codecs
import gzip
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
from pyarrow import parquet

from pipelines import _image_sources, _prepare, _tabular_sources, _text
from pipelines.autoencoder import Autoencoder
from pipelines.click_through import ClickThrough
from pipelines.image_classification import ImageClassification
from pipelines.masked_language_model import MaskedLanguageModel

KINDS = {
    "image_classification": (_image_sources.convert_images, _image_sources.SOURCES),
    "click_through": (_tabular_sources.convert_tables, _tabular_sources.SOURCES),
    "masked_language_model": (_text.convert_texts, _text.SOURCES),
}


def prepare(kind, source, output):
    convert, sources = KINDS[kind]
    return _prepare.main(kind, convert, sources, ["prepare", "--source", str(source), "--output", str(output)])


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx_files(folder, sizes=(40, 20)):
    random, made = np.random.default_rng(0), {}
    for prefix, size in zip(("train", "t10k"), sizes, strict=True):
        made[prefix] = random.integers(0, 256, (size, 8, 8)).astype(np.uint8), np.arange(size, dtype=np.uint8) % 4
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(made[prefix][0])))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(made[prefix][1]))
    return made


def read(path):
    return parquet.read_table(path).to_pydict()


def test_idx_files(tmp_path, capsys):
    made = idx_files(tmp_path)
    assert prepare("image_classification", tmp_path, tmp_path / "out") == 0
    assert "train.parquet: 40 rows" in capsys.readouterr().out
    for name, prefix in (("train", "train"), ("test", "t10k")):
        found = read(tmp_path / f"out/{name}.parquet")
        np.testing.assert_array_equal(found["image"], made[prefix][0].reshape(-1, 64))
        np.testing.assert_array_equal(found["label"], made[prefix][1])
    assert ImageClassification(str(tmp_path / "out")).num_train_samples == 36
    assert Autoencoder(str(tmp_path / "out")).num_train_samples == 36


def test_files_in_folders_of_their_own_names(tmp_path):
    """As Kaggle packs MNIST."""
    idx_files(tmp_path)
    for file in list(tmp_path.iterdir()):
        file.rename(tmp_path / "moved")
        file.mkdir()
        (tmp_path / "moved").rename(file / file.name)
    assert prepare("image_classification", tmp_path, tmp_path / "out") == 0
    assert len(read(tmp_path / "out/test.parquet")["label"]) == 20


def test_a_folder_called_like_a_table_is_no_table(tmp_path, capsys):
    for name in ("census-income.data", "train.txt", "day_1"):
        (tmp_path / name).mkdir()
    assert prepare("click_through", tmp_path, tmp_path / "out") == 2
    assert "holds none of these" in capsys.readouterr().err


def test_cifar_10(tmp_path):
    random = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        batch = {b"data": random.integers(0, 256, (10, 3072)).astype(np.uint8), b"labels": list(range(10))}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    assert prepare("image_classification", tmp_path, tmp_path / "out") == 0
    found = read(tmp_path / "out/train.parquet")
    assert found["label"] == list(range(10)) * 5
    pipeline = ImageClassification(str(tmp_path / "out"), model="resnet20")
    assert pipeline.test_data()[np.arange(2)][0].shape == (2, 3, 32, 32)
    np.testing.assert_array_equal(read(tmp_path / "out/test.parquet")["image"], batch[b"data"])


def test_a_pickle_that_would_run_something_is_refused(tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil()}))
    assert prepare("image_classification", tmp_path, tmp_path / "out") == 2
    assert "mkdir, which no file of CIFAR-10 does" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def census_line(age, workclass, income):
    values = dict.fromkeys(_tabular_sources.CENSUS_COLUMNS, " Not in universe")
    values |= dict.fromkeys(_tabular_sources.CENSUS_NUMBERS, " 0")
    values |= {"age": str(age), "class_of_worker": f" {workclass}", "instance_weight": " 1700.09", "label": income}
    return ",".join(values.values()) + "\n"


def test_census_income(tmp_path):
    lines = [census_line(20 + i, "Private", " 50000+." if i % 3 == 0 else " - 50000.") for i in range(30)]
    (tmp_path / "census-income.data").write_text("".join(lines))
    (tmp_path / "census-income.test").write_text("".join(lines[:9]))
    assert prepare("click_through", tmp_path, tmp_path / "out") == 0
    found = read(tmp_path / "out/train.parquet")
    assert list(found) == _tabular_sources.CENSUS_COLUMNS
    assert found["age"][:2] == [20, 21]
    assert found["class_of_worker"][0] == "Private"
    assert found["label"][:4] == [1, 0, 0, 1]
    batch = ClickThrough(str(tmp_path / "out")).test_data()[np.arange(9)]
    assert batch["numbers"].shape == (9, 7)
    assert batch["categories"].shape == (9, 33)


def criteo_lines(size):
    return "".join(
        "\t".join([str(i % 2), *(str(i) if i % 3 else "" for _ in range(13)), *(f"{i % 5:08x}" for _ in range(26))])
        + "\n"
        for i in range(size)
    )


def test_criteo_by_days(tmp_path):
    for day, size in ((0, 20), (2, 15), (10, 12)):
        (tmp_path / f"day_{day}").write_text(criteo_lines(size))
    assert prepare("click_through", tmp_path, tmp_path / "out") == 0
    assert len(read(tmp_path / "out/test.parquet")["label"]) == 12
    pipeline = ClickThrough(str(tmp_path / "out"))
    assert pipeline.num_train_samples == 35 - 3
    batch = pipeline.train_data()[np.arange(9)]
    assert batch["numbers"].shape == (9, 13)
    assert batch["categories"].shape == (9, 26)


def test_criteo_in_one_file_gives_its_last_seventh_for_test(tmp_path):
    (tmp_path / "train.txt").write_text(criteo_lines(70))
    assert prepare("click_through", tmp_path, tmp_path / "out") == 0
    train, test = (read(tmp_path / f"out/{name}.parquet") for name in ("train", "test"))
    assert train["I1"] + test["I1"] == [i if i % 3 else None for i in range(70)]
    assert len(test["I1"]) == 10


def test_text_files(tmp_path):
    (tmp_path / "source/deep").mkdir(parents=True)
    for number in range(60):
        (tmp_path / f"source/deep/{number}.rst").write_text(f"document {number} with some words\n" * 20)
    (tmp_path / "source/a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "source/ignored.bin").write_bytes(b"\0")
    assert prepare("masked_language_model", tmp_path / "source", tmp_path / "out") == 0
    found = read(tmp_path / "out/documents.parquet")
    assert found["name"][:2] == ["a.txt", "deep/0.rst"]
    assert len(found["name"]) == 61
    assert found["text"][0] == "caf\ufffd"
    assert MaskedLanguageModel(str(tmp_path / "out"), length=16, vocabulary=100).num_train_samples > 50


def break_idx(folder):
    idx_files(folder)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(7, np.uint8)))


def cut_idx(folder):
    idx_files(folder)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(40, np.uint8))[:-1])


@pytest.mark.parametrize(
    ("kind", "make", "message"),
    [
        ("image_classification", lambda f: None, "holds neither train-images-idx3-ubyte nor"),
        ("image_classification", break_idx, "train-* has 40 images but 7 labels"),
        ("image_classification", cut_idx, "is no IDX file of bytes with 1 axes, or not all of it"),
        ("click_through", lambda f: None, "holds none of these"),
        ("click_through", lambda f: (f / "train.txt").write_text("1\t2\n"), "train.txt cannot be read"),
        (
            "click_through",
            lambda f: (f / "census-income.data").write_text("1,2\n"),
            "census-income.data cannot be read",
        ),
        ("masked_language_model", lambda f: None, "holds no text files"),
    ],
)
def test_sources_that_cannot_be_converted_get_a_sentence_and_status_2(kind, make, message, tmp_path, capsys):
    make(tmp_path)
    assert prepare(kind, tmp_path, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("out/*.parquet"))


@pytest.mark.parametrize("kind", [*KINDS, "autoencoder"])
def test_the_command_of_the_error_messages_exists(kind, tmp_path):
    command = [
        sys.executable,
        "-m",
        f"pipelines.{kind}",
        "prepare",
        "--source",
        str(tmp_path / "gone"),
        "--output",
        "x",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "gone is no folder. The folder holds" in done.stderr


def cifar(folder, **changes):
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        batch = {b"data": np.zeros((10, 3072), np.uint8), b"labels": list(range(10))}
        (folder / name).write_bytes(pickle.dumps(batch | {key.encode(): value for key, value in changes.items()}))


def half(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damaged_gzip(folder):
    idx_files(folder)
    half(folder / "train-images-idx3-ubyte.gz")


def empty_idx(folder):
    idx_files(folder)
    (folder / "train-labels-idx1-ubyte").write_bytes(b"")


def no_images(folder):
    idx_files(folder, sizes=(0, 5))


def oblong(folder):
    idx_files(folder)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros((20, 8, 5), np.uint8))))


def damaged_pickle(folder):
    cifar(folder)
    half(folder / "data_batch_3")


def census(folder, **changes):
    good = census_line(30, "Private", " 50000+.")
    bad = ",".join(changes.get(name, " 0") for name in _tabular_sources.CENSUS_COLUMNS) + "\n"
    for name in ("data", "test"):
        (folder / f"census-income.{name}").write_text(good * 20 + bad)


def criteo(folder, bad):
    (folder / "train.txt").write_text(criteo_lines(20) + criteo_lines(1).replace("0", bad, 1))


def days(*names):
    return lambda folder: [(folder / name).write_text(criteo_lines(5)) for name in names]


@pytest.mark.parametrize(
    ("kind", "make", "message"),
    [
        ("image_classification", damaged_gzip, "train-images-idx3-ubyte.gz cannot be read"),
        ("image_classification", empty_idx, "train-labels-idx1-ubyte cannot be read"),
        ("image_classification", no_images, "no square"),
        ("image_classification", oblong, "not square"),
        ("image_classification", damaged_pickle, "data_batch_3 cannot be read"),
        ("image_classification", lambda f: cifar(f, labels=[1, 2]), "data_batch_1 has 10 images but 2 labels"),
        ("image_classification", lambda f: cifar(f, labels=["a"] * 10), "whole numbers for labels"),
        ("image_classification", lambda f: cifar(f, data=np.zeros((10, 3000), np.uint8)), "3000 values: no square"),
        ("image_classification", lambda f: cifar(f, data=[1, 2]), "no bytes of images"),
        ("click_through", lambda f: census(f, label=" maybe"), "lines 1 to 21, cannot be read (a label is neither"),
        ("click_through", lambda f: census(f, label=" - 50000.", age="73.5"), "census-income.data, lines 1 to 21,"),
        ("click_through", lambda f: criteo(f, "2"), "train.txt, lines 1 to 21, cannot be read (a label is neither 0"),
        ("click_through", lambda f: criteo(f, "0\tx"), "train.txt cannot be read"),
        ("click_through", days("day_0"), "holds day_0 alone"),
        ("click_through", days("day_0", "day_0.gz", "day_1"), "holds a day twice"),
        ("masked_language_model", lambda f: (f / "a.TXT").write_text(" \n"), "there are no rows"),
    ],
)
def test_damaged_sources_are_named_and_leave_nothing_behind(kind, make, message, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    make(tmp_path / "in")
    assert prepare(kind, tmp_path / "in", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_tables_that_are_there_are_never_overwritten(tmp_path, capsys):
    (tmp_path / "out/train").mkdir(parents=True)
    idx_files(tmp_path)
    assert prepare("image_classification", tmp_path, tmp_path / "out") == 2
    assert "out holds train already; remove them" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert prepare("image_classification", tmp_path, tmp_path / "file") == 2
    assert "file is no folder" in capsys.readouterr().err
    assert prepare("image_classification", tmp_path, "s3://bucket/x") == 2
    assert "is a URI" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "text", "said"),
    [
        ("caf\u00e9".encode("utf-16"), "caf\u00e9", ""),
        ("caf\u00e9".encode("utf-32"), "caf\u00e9", ""),
        (codecs.BOM_UTF32_BE + "caf\u00e9".encode("utf-32-be"), "caf\u00e9", ""),
        ("the sign \ufffd".encode(), "the sign \ufffd", ""),
        (b"caf\xe9", "caf\ufffd", "a.MD is not all UTF-8"),
        ("caf\u00e9".encode("utf-16") + b"\0", "caf\u00e9\ufffd", "a.MD is not all UTF-16"),
    ],
)
def test_text_in_other_codings_is_read_and_what_cannot_be_is_said(tmp_path, capsys, content, text, said):
    (tmp_path / "a.MD").write_bytes(content)
    assert prepare("masked_language_model", tmp_path, tmp_path / "out") == 0
    assert read(tmp_path / "out/documents.parquet")["text"] == [text]
    error = capsys.readouterr().err
    assert said in error if said else error == ""
