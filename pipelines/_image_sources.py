"""Public files of images: IDX (MNIST, Fashion-MNIST) and the Python version of CIFAR-10."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines._images import square_shape
from pipelines._prepare import need, reading, write_parquet

SOURCES = (
    "The folder holds IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., gzipped or not), as of "
    "MNIST and Fashion-MNIST (github.com/zalandoresearch/fashion-mnist), or the Python version of CIFAR-10 "
    "(data_batch_1 to data_batch_5, test_batch; www.cs.toronto.edu/~kriz/cifar.html)."
)


def convert_images(source: Path, output: Path) -> Mapping[str, int]:
    """train.parquet and test.parquet from whichever files the folder holds."""
    found = _files(source, "data_batch_1")
    splits = _cifar(found[0].parent) if found else _idx(source)
    return {f"{name}.parquet": write_parquet(output / f"{name}.parquet", pieces) for name, pieces in splits.items()}


def image_table(source: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Any:
    """Images, uint8 of shape [images, pixels], and labels as an Arrow table of the schema the pipelines read.

    Raises:
        ConfigError: naming the source, where they do not fit together or are not square.
    """
    import pyarrow

    need(len(images) == len(labels), f"{source} has {len(images)} images but {len(labels)} labels.")
    square = square_shape(images.shape[1]) is not None
    need(images.shape[1] > 0 and square, f"{source} has images of {images.shape[1]} values: no square.")
    pixels = pyarrow.array(np.ascontiguousarray(images).reshape(-1))
    columns = [pyarrow.FixedSizeListArray.from_arrays(pixels, images.shape[1]), pyarrow.array(labels, pyarrow.uint16())]
    return pyarrow.table(columns, names=["image", "label"])


def _idx(source: Path) -> dict[str, Iterator[Any]]:
    return {name: _idx_split(source, prefix) for name, prefix in (("train", "train"), ("test", "t10k"))}


def _idx_split(source: Path, prefix: str) -> Iterator[Any]:
    images = _read_idx(source, f"{prefix}-images-idx3-ubyte", 3)
    labels = _read_idx(source, f"{prefix}-labels-idx1-ubyte", 1)
    need(images.shape[1] == images.shape[2], f"{source}/{prefix}-* has images of {images.shape[1:]}: not square.")
    yield image_table(source / f"{prefix}-*", images.reshape(len(images), images[0].size if len(images) else 0), labels)


def _files(source: Path, name: str) -> list[Path]:
    """Files of this name; some archives put each into a folder that is called like it."""
    return [path for path in source.rglob(name) if path.is_file()]


def _read_idx(source: Path, name: str, axes: int) -> np.ndarray[Any, Any]:
    found = [*_files(source, name), *_files(source, f"{name}.gz")]
    need(bool(found), f"{source} holds neither {name} nor {name}.gz. {SOURCES}")
    with reading(found[0]):
        data = gzip.decompress(found[0].read_bytes()) if found[0].suffix == ".gz" else found[0].read_bytes()
        shape = np.frombuffer(data, ">u4", axes, 4)
    right = data[:4] == bytes([0, 0, 8, axes]) and len(data) == 4 + 4 * axes + np.prod(shape, dtype=np.int64)
    need(right, f"{found[0]} is no IDX file of bytes with {axes} axes, or not all of it.")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _cifar(folder: Path) -> dict[str, Iterator[Any]]:
    return {
        "train": (_cifar_batch(folder / f"data_batch_{number}") for number in range(1, 6)),
        "test": (_cifar_batch(folder / name) for name in ["test_batch"]),
    }


def _cifar_batch(file: Path) -> Any:
    with reading(file), file.open("rb") as opened:
        batch = _ArraysOnly(opened, encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    right = pixels.dtype == np.uint8 and pixels.ndim == 2 and labels.ndim == 1 and labels.dtype.kind in "iu"
    need(right, f"{file} holds no bytes of images with whole numbers for labels, as CIFAR-10 does.")
    return image_table(file, pixels, labels)


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays and plain values. A pickle from elsewhere may name any function to call; these cannot."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {"_reconstruct", "ndarray", "dtype", "_frombuffer", "scalar"}
        need(
            (module.split(".")[0] == "numpy" and name in allowed) or (module, name) == ("_codecs", "encode"),
            f"the pickle asks for {module}.{name}, which no file of CIFAR-10 does.",
        )
        return super().find_class(module, name)
