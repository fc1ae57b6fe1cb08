"""Arrays in files, memory-mapped: data larger than memory, gathered by arbitrary numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from vrgd_ray.config import require

Array: TypeAlias = np.ndarray[Any, Any]
_LAYOUT = "layout.json"


class MappedArrays(Mapping[str, Array]):
    """Named read-only arrays of a folder. Opening costs nothing; what is read, the system keeps as long as it likes.

    Pickled, it is the name of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        layout = json.loads((folder / _LAYOUT).read_text())
        self._arrays = {name: _map(folder / name, kind, shape) for name, (kind, shape) in layout.items()}

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
        pieces: the same names in every piece, each with one dtype and one shape beyond the first axis.

    Raises:
        ConfigError: there are no pieces, or a piece does not fit to those before it.
    """
    layout: dict[str, tuple[str, list[int]]] = {}
    with ExitStack() as open_files:
        files: dict[str, BinaryIO] = {}
        for piece in pieces:
            for name, array in piece.items():
                if name not in files:
                    files[name] = open_files.enter_context((folder / name).open("wb"))
                    layout[name] = (array.dtype.str, [0, *array.shape[1:]])
                _append(name, array, files[name], layout[name])
    require(bool(layout), "there is nothing to read: the table has no rows.")
    (folder / _LAYOUT).write_text(json.dumps(layout))


def _map(file: Path, kind: str, shape: list[int]) -> Array:
    if shape[0] == 0:
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
