"""Tiny Parquet data that every pipeline can learn something from, made by the tests themselves."""

import numpy as np
import pyarrow as pa
from pyarrow import parquet

WORDS = [f"{first}{second}" for first in "bdfg" for second in ("ab", "en", "ig")]


def write(folder, name, columns, row_group_size=100):
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=row_group_size)


def image_column(pixels):
    flat = pa.array(np.ascontiguousarray(pixels, np.uint8).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, pixels.shape[1])


def images(folder, sizes=(700, 203), side=8, channels=1, seed=0):
    """Each class is a bright column of its own, mirrored or not, on noise."""
    random = np.random.default_rng(seed)
    for name, size in zip(("train", "test"), sizes, strict=True):
        labels = random.integers(0, 4, size)
        pixels = random.integers(0, 60, (size, channels, side, side))
        for number, label in enumerate(labels):
            pixels[number, :, label * 2 : label * 2 + 2] += 150
        write(folder, name, {"image": image_column(pixels.reshape(size, -1)), "label": pa.array(labels, pa.uint8())})
    return folder


def table(folder, sizes=(2000, 303), seed=0):
    """Clicks that follow from a colour and an amount. The test table has a colour that training never sees."""
    random = np.random.default_rng(seed)
    for name, size in zip(("train", "test"), sizes, strict=True):
        colours = np.array(["red", "green", "blue", "violet"])[random.integers(0, 3 + (name == "test"), size)]
        amounts, codes = random.exponential(100, size), random.integers(0, 9, size)
        clicks = (colours == "red") ^ (amounts > 100)
        columns = {"colour": colours, "industry_code": codes, "amount": amounts, "instance_weight": amounts}
        write(folder, name, {**columns, "label": clicks.astype(np.int8)})
    return folder


def documents(folder, count=80, words=125, seed=0):
    """Texts in which every word follows from the one before, half of the time."""
    random = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        word = random.integers(len(WORDS))
        text = []
        for _ in range(words):
            text.append(WORDS[word])
            word = (word + 1) % len(WORDS) if random.random() < 0.5 else random.integers(len(WORDS))
        texts.append(" ".join(text))
    write(folder, "documents", {"name": [f"{number}.txt" for number in range(count)], "text": texts})
    return folder


MAKERS = {
    "pipelines.autoencoder": (images, {"latent": 4, "width": 8}),
    "pipelines.click_through": (
        table,
        {"embedding": 4, "codes": ["industry_code"], "ignored": ["instance_weight"]},
    ),
    "pipelines.image_classification": (images, {}),
    "pipelines.masked_language_model": (documents, {"length": 16, "positions": 16, "vocabulary": 60, "dropout": 0.0}),
}
"""Pipeline -> what makes its data, and further arguments."""
