"""Square images in Parquet: the splits, the gather of a batch, crop and flip by keys."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from pipelines._prepare import command, need
from pipelines._rows import AnyRows, Rows, some, train_and_validation
from vrgd_ray import ConfigError, MappedArrays, ParquetTable, keyed_uniform

Array: TypeAlias = np.ndarray[Any, Any]
_COUNTED_AT_ONCE = 64


class ImageFolder:
    """The tables `train` and `test` of a folder: `image`, fixed_size_list<uint8>, and `label`, a whole number from 0.

    An image is square with 1 or 3 channels, channels first, row by row; its size follows from the length of the list.

    Args:
        data: folder or URI.
        subset: training images to keep, and at most that many of validation and of test; None for all.
        pipeline: who reads, for error messages.
        labels: whether `label` is needed.

    Raises:
        ConfigError: a table or a column is missing, or the images are not square.
    """

    def __init__(self, data: str, subset: int | None, pipeline: str, *, labels: bool = True) -> None:
        remedy = command(pipeline, data or "FOLDER")
        need(bool(data), f"data = FOLDER is needed, with train.parquet and test.parquet; {remedy}")
        need(subset is None or subset > 0, f"subset = {subset} must be above 0.")
        self._columns = ["image", "label"] if labels else ["image"]
        self._train, self._test = (
            ParquetTable(f"{data.rstrip('/')}/{name}", remedy=remedy) for name in ("train", "test")
        )
        for table in (self._train, self._test):
            table.check_columns(self._columns)
            if labels:
                _check_label(table)
        self.shape, shape = _shape(self._train), _shape(self._test)
        need(self.shape == shape, f"{data} has images of shape {self.shape} in train and {shape} in test; {remedy}")
        self.train_rows, self._validation_rows = train_and_validation(self._train.num_rows, subset)
        self._test_rows = some(Rows(self._test.num_rows), subset)

    @cached_property
    def num_classes(self) -> int:
        """One more than the largest label of either table."""
        tables = self._arrays["label"], self._test.mapped(self._columns)["label"]
        need(min(labels.min() for labels in tables) >= 0, "a label is below 0; classes are numbered from 0.")
        largest = max(int(labels.max()) for labels in tables)
        images = self._train.num_rows
        need(largest < images, f"label {largest} is a class too many for {images} images; number them from 0.")
        return 1 + largest

    def train(self, *, normalise: bool, crop: int = 0, flip: bool = False) -> Images:
        """Training images, changed at random where that is wanted."""
        plain = self._images(self._arrays, self.train_rows, normalise)
        return AugmentedImages(plain, crop, flip) if crop or flip else plain

    def validation(self, *, normalise: bool) -> Images:
        """Images held out of the training table."""
        return self._images(self._arrays, self._validation_rows, normalise)

    def test(self, *, normalise: bool) -> Images:
        """The images of the test table."""
        return self._images(self._test.mapped(self._columns), self._test_rows, normalise)

    @cached_property
    def _arrays(self) -> MappedArrays:
        return self._train.mapped(self._columns)

    def _images(self, arrays: MappedArrays, rows: AnyRows, normalise: bool) -> Images:
        mean, deviation = self._statistics if normalise else (0.0, 1.0)
        return Images(arrays, rows, self.shape, mean, deviation)

    @cached_property
    def _statistics(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each channel over up to 10,000 training images, in 0..1."""
        rows = self.train_rows[np.arange(min(10_000, len(self.train_rows)))]
        counts = np.zeros((self.shape[0], 256), np.int64)
        for first in range(0, len(rows), _COUNTED_AT_ONCE):
            counts += self._counted(rows[first : first + _COUNTED_AT_ONCE])
        values, pixels = np.arange(256), counts.sum(1)
        means = counts @ values / pixels
        deviations = np.sqrt((counts * (values - means[:, None]) ** 2).sum(1) / pixels)
        scale = np.where(deviations > 0, deviations / 255 + 1e-6, 1.0)  # what is constant here may vary elsewhere
        return means[:, None, None] / 255, scale[:, None, None]

    def _counted(self, rows: Array) -> Array:
        """How often each byte occurs in each channel of these images, [channels, 256]."""
        pixels = self._arrays["image"][rows].reshape(len(rows), self.shape[0], -1)
        return np.stack([np.bincount(channel.reshape(-1), minlength=256) for channel in pixels.swapaxes(0, 1)])


class Images:
    """Images, float32 of shape [samples, channels, side, side], and labels, int64, if there are any."""

    def __init__(
        self, arrays: MappedArrays, rows: AnyRows, shape: tuple[int, int, int], mean: Any, deviation: Any
    ) -> None:
        self.arrays, self.rows, self.shape = arrays, rows, shape
        # One table of 256 values for each channel: a byte becomes its number by look-up.
        values = (np.arange(256) / 255 - mean) / deviation
        self._values = np.broadcast_to(values.reshape(-1, 256), (shape[0], 256)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: Array) -> tuple[torch.Tensor, ...]:
        rows = self.rows[indices]
        return self.batch(self.pixels(rows), rows)

    def pixels(self, rows: Array) -> Array:
        """The bytes of these rows, [rows, channels, side, side]."""
        return self.arrays["image"][rows].reshape(-1, *self.shape)

    def batch(self, pixels: Array, rows: Array) -> tuple[torch.Tensor, ...]:
        """Images from bytes, and the labels of the rows."""
        images = np.empty(pixels.shape, np.float32)
        for channel, values in enumerate(self._values):
            np.take(values, pixels[:, channel], out=images[:, channel])
        labels = [self.arrays["label"][rows].astype(np.int64)] if "label" in self.arrays else []
        return tuple(torch.from_numpy(array) for array in (images, *labels))


class AugmentedImages(Images):
    """Images moved by up to `crop` pixels each way over a black border, and mirrored in half of the cases."""

    def __init__(self, plain: Images, crop: int, flip: bool) -> None:
        self.__dict__ |= plain.__dict__
        self._crop, self._flip = crop, flip

    def augmented(self, indices: Array, keys: Array) -> tuple[torch.Tensor, ...]:
        """The batch, each image changed by its key alone."""
        rows, draws = self.rows[indices], keyed_uniform(keys, 3)
        down, right = (draws[:, :2] * (2 * self._crop + 1)).astype(np.int64).T
        mirrored = (draws[:, 2] < 0.5) & self._flip
        return self.batch(_moved(self.pixels(rows), down, right, mirrored, self._crop), rows)


def _moved(pixels: Array, down: Array, right: Array, mirrored: Array, border: int) -> Array:
    """Windows of the bordered images, as large as the images; their corners are at (down, right)."""
    count, channels, side, _ = pixels.shape
    bordered = np.zeros((count, channels, side + 2 * border, side + 2 * border), np.uint8)
    bordered[..., border : border + side, border : border + side] = pixels
    windows = np.empty_like(pixels)
    for number, (y, x, mirror) in enumerate(zip(down.tolist(), right.tolist(), mirrored.tolist(), strict=True)):
        window = bordered[number, :, y : y + side, x : x + side]
        windows[number] = window[..., ::-1] if mirror else window
    return windows


def _check_label(table: ParquetTable) -> None:
    import pyarrow

    kind = table.schema.field("label").type
    right = pyarrow.types.is_integer(kind)
    need(right, f"label in the table {table.location} holds {kind}, not whole numbers; {table.remedy}")


def square_shape(values: int) -> tuple[int, int, int] | None:
    """Channels, height and width of a square image of so many values; None if no square of 1 or 3 channels has them."""
    for channels in (1, 3):
        side = math.isqrt(values // channels)
        if channels * side * side == values:
            return channels, side, side
    return None


def _shape(table: ParquetTable) -> tuple[int, int, int]:
    import pyarrow

    kind = table.schema.field("image").type
    right = pyarrow.types.is_fixed_size_list(kind) and kind.value_type == pyarrow.uint8()
    need(right, f"image in the table {table.location} is {kind}, not a fixed_size_list<uint8>; {table.remedy}")
    shape = square_shape(kind.list_size)
    if shape is None:
        raise ConfigError(f"the images in {table.location} have {kind.list_size} values: no square of 1 or 3 channels.")
    return shape
