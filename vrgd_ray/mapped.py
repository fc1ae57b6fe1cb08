"""Arrays in files, memory-mapped: data larger than memory, gathered by arbitrary numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from vrgd_ray.config import ConfigError, require

Array: TypeAlias = np.ndarray[Any, Any]
_LAYOUT = "layout.json"
_KINDS = "biufcSU"
"""Kinds of dtype whose bytes are the values: numbers, truth values, text of a fixed width."""


class MappedArrays(Mapping[str, Array]):
    """Named read-only arrays of a folder. Opening costs nothing; what is read, the system keeps as long as it likes.

    Pickled, it is the name of the folder.

    Raises:
        ConfigError: the folder, or one of its files, is gone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # unpickled, it may be read from anywhere
        try:
            layout = json.loads((self.folder / _LAYOUT).read_text())
            self._arrays = {
                name: _map(self.folder / str(number), kind, shape)
                for number, (name, (kind, shape)) in enumerate(layout.items())
            }
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the arrays in {self.folder} cannot be mapped ({error}): they were deleted or lie on another machine; "
                "start again, and they are made anew from their table."
            ) from error

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedArrays, (self.folder,)


def write_arrays(folder: Path, pieces: Iterable[Mapping[str, Array]]) -> None:
    """Append the pieces of each array one after the other; no more than a piece is in memory at once.

    Args:
        folder: gets a file for each array.
        pieces: the same names in every piece, each with one dtype and one shape beyond the first axis; along that
            axis the arrays of a piece may differ in length.

    Raises:
        ConfigError: there are no pieces, a dtype cannot be mapped, or a piece does not fit to those before it.
    """
    layout: dict[str, tuple[str, list[int]]] = {}
    with ExitStack() as open_files:
        files: dict[str, BinaryIO] = {}
        for piece in pieces:
            if not files:
                layout = {name: _begin(name, array) for name, array in piece.items()}
                # By number: a name may hold what a file's must not.
                opened = [open_files.enter_context((folder / str(number)).open("wb")) for number in range(len(layout))]
                files = dict(zip(layout, opened, strict=True))
            require(
                piece.keys() == files.keys(),
                f"the arrays change on the way from {', '.join(files)} to {', '.join(piece)}.",
            )
            for name, array in piece.items():
                _append(name, array, files[name], layout[name])
    require(bool(layout), "there is nothing to map: the table has no rows, or no arrays are made of them.")
    (folder / _LAYOUT).write_text(json.dumps(layout))


def _begin(name: str, array: Array) -> tuple[str, list[int]]:
    """Dtype and shape before the first row. Of objects, the bytes are addresses in this process."""
    require(
        array.dtype.kind in _KINDS,
        f"{name} has the dtype {array.dtype}, which cannot be mapped from a file; make it numbers or text of a fixed "
        "width, as astype does.",
    )
    return array.dtype.str, [0, *array.shape[1:]]


def _map(file: Path, kind: str, shape: list[int]) -> Array:
    if 0 in shape:
        return np.empty(shape, kind)  # nothing cannot be mapped
    # As a plain array: every gather from a memmap would pay for making another memmap.
    return np.asarray(np.memmap(file, np.dtype(kind), "r", shape=tuple(shape)))


def _append(name: str, array: Array, file: BinaryIO, layout: tuple[str, list[int]]) -> None:
    kind, shape = layout
    require(
        array.dtype.str == kind and list(array.shape[1:]) == shape[1:],
        f"{name} changes on the way from {kind} {shape[1:]} to {array.dtype.str} {list(array.shape[1:])}.",
    )
    file.write(np.ascontiguousarray(array).data)
    shape[0] += len(array)
