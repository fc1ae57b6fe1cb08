"""Tables in Parquet files, here or in an object store, as memory-mapped arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

from vrgd_ray.cache import made_once
from vrgd_ray.config import ConfigError, first_line, require
from vrgd_ray.mapped import Array, MappedArrays, write_arrays

RecordBatch: TypeAlias = Any
"""A `pyarrow.RecordBatch`: some rows of the table."""
Convert: TypeAlias = Callable[[RecordBatch], Mapping[str, Array]]

_BATCH_BYTES = 2**22
"""Bytes decoded at once, about."""
_BUFFER = 2**20
"""Bytes of a column fetched at once; without a buffer a whole row group is."""


class ParquetTable:
    """One table: `LOCATION.parquet`, or all Parquet files of the folder `LOCATION`, in the order of their names, but
    not both.

    Training asks for samples in random order, for which Parquet is not made. `mapped` therefore copies the columns that
    are needed, once, into uncompressed files in a cache on this machine and maps them into memory: a gather is then one
    read for each sample and memory stays as it is, however large the table. The cache is `$VRGD_CACHE`, by default
    `~/.cache/vrgd_ray`; it may be deleted at any time, and a table that has changed, or whose copy lost a file, is
    copied anew.

    Args:
        location: path or URI (s3://bucket/data/train) without the ending.
        remedy: how the table is made; the end of every error message.

    Raises:
        ConfigError: there is no such table, there are two, or it cannot be read.
    """

    def __init__(self, location: str, *, remedy: str) -> None:
        from pyarrow import ArrowException, fs

        self.location, self.remedy = location, remedy
        try:
            uri = location if "://" in location else os.path.abspath(os.path.expanduser(location))
            self._files, path = fs.FileSystem.from_uri(uri)
            self._infos = self._find(path)
            # One after the other: a table may have more files than a process may hold open.
            footers = [(file.metadata.num_rows, file.schema_arrow) for file in map(self._open, self._infos)]
            self.num_rows = sum(rows for rows, _ in footers)
            self._schemas = [schema for _, schema in footers]
        except (ArrowException, OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"the table {location} cannot be read ({first_line(error)}); {remedy}") from error
        require(self.num_rows > 0, f"the table {location} has no rows; {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ParquetTable, remedy=self.remedy), (self.location,)  # looked up anew where it arrives

    def _find(self, path: str) -> list[Any]:
        from pyarrow import fs

        single, folder = self._files.get_file_info([f"{path}.parquet", path])
        listed = self._files.get_file_info(fs.FileSelector(path)) if folder.type == fs.FileType.Directory else []
        inside = sorted((i for i in listed if i.is_file and i.extension == "parquet"), key=lambda i: str(i.path))
        require(
            single.is_file or bool(inside),
            f"there is neither {self.location}.parquet nor a folder {self.location} with Parquet files; {self.remedy}",
        )
        require(
            not (single.is_file and inside),
            f"there are both {self.location}.parquet and a folder {self.location} with Parquet files; keep the one "
            "that is the table, and move or delete the other.",
        )
        return inside or [single]

    def _open(self, info: Any) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(self._files.open_input_file(info.path), buffer_size=_BUFFER)

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the first file."""
        return self._schemas[0]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when a file does: a digest of names, sizes and times of writing."""
        facts = [(info.path, info.size, info.mtime_ns) for info in self._infos]
        return hashlib.sha256(repr((self._files.type_name, facts)).encode()).hexdigest()[:16]

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse a table without these columns, with two of one name, or whose files have them in different types.

        Raises:
            ConfigError: naming what is missing and what there is, or the file that differs; no column is asked for.
        """
        require(bool(columns), f"no columns of the table {self.location} are asked for; name at least one.")
        for info, schema in zip(self._infos, self._schemas, strict=True):
            missing = [name for name in columns if name not in schema.names]
            where = f"the table {self.location}" if info is self._infos[0] else info.path
            require(
                not missing,
                f"{where} lacks {', '.join(missing)} (it has {', '.join(schema.names)}); {self.remedy}",
            )
            twice = [name for name in columns if schema.names.count(name) > 1]
            require(not twice, f"{where} has more than one column {', '.join(twice)}; {self.remedy}")
            for name in columns:
                kind, first = schema.field(name).type, self.schema.field(name).type
                require(kind == first, f"{name} in {info.path} holds {kind}, in {self._infos[0].path} {first}.")

    def batches(self, columns: Sequence[str]) -> Iterator[RecordBatch]:
        """The rows in order, some megabytes at once; other columns are never read.

        Raises:
            ConfigError: a column is missing, or a file is damaged.
        """
        from pyarrow import ArrowException

        self.check_columns(columns)
        try:
            for info in self._infos:
                file = self._open(info)
                rows = _rows_at_once(file, columns)
                for group in range(file.num_row_groups):  # asked for all at once, it keeps a buffer for every group
                    yield from file.iter_batches(rows, [group], list(columns), use_threads=False)
        except (ArrowException, OSError) as error:
            raise ConfigError(
                f"the table {self.location} cannot be read ({first_line(error)}); {self.remedy}"
            ) from error

    def mapped(self, columns: Sequence[str], convert: Convert | None = None, key: str = "") -> MappedArrays:
        """The columns as arrays of as many rows, memory-mapped.

        Args:
            columns: what to read.
            convert: makes arrays of some rows, if they are to be other arrays than the columns themselves; these may
                have other numbers of rows.
            key: needed with `convert`: names all that it depends on, its own version included, so that no other's
                arrays are taken for these.

        Raises:
            ConfigError: a column is missing, is no number, or has empty fields; `convert` has no key, or its arrays
                cannot be mapped; the cache cannot be written.
        """
        require(
            convert is None or bool(key),
            "convert needs a key that names all its arrays depend on, as key='scaled to 1, version 2', and that "
            "changes when convert does; else arrays made earlier by another one would be taken for these.",
        )
        make = convert or self._plain
        self.check_columns(columns)
        folder = self.derived(
            f"{'columns' if convert is None else 'arrays'} 2 {list(columns)} {key}",
            lambda unfinished: write_arrays(unfinished, (make(batch) for batch in self.batches(columns))),
        )
        return MappedArrays(folder)

    def derived(self, key: str, make: Callable[[Path], None]) -> Path:
        """A folder in the cache with what `make` wrote into it, made once for this table and key.

        Processes that make it at the same time do not disturb each other: one of the results stays. Where files of it
        are gone, as a cleaner takes those not read for long, it is made again.

        Raises:
            ConfigError: the cache cannot be written.
        """
        return made_once(hashlib.sha256(f"{self.fingerprint} {key}".encode()).hexdigest()[:32], make)

    def _plain(self, batch: RecordBatch) -> Mapping[str, Array]:
        return {name: self._numbers(name, column) for name, column in zip(batch.schema.names, batch, strict=True)}

    def _numbers(self, name: str, column: Any) -> Array:
        import pyarrow

        width = column.type.list_size if pyarrow.types.is_fixed_size_list(column.type) else None
        values = column if width is None else column.flatten()
        kind = values.type
        plain = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
        require(plain, f"{name} in the table {self.location} holds {kind}, not numbers; {self.remedy}")
        empty = column.null_count + values.null_count
        require(empty == 0, f"{name} in the table {self.location} has empty fields; {self.remedy}")
        numbers: Array = values.to_numpy(zero_copy_only=False)
        return numbers if width is None else numbers.reshape(-1, width)


def _rows_at_once(file: Any, columns: Sequence[str]) -> int:
    """Rows that hold about `_BATCH_BYTES` of these columns once they are decoded."""
    size = sum(_bytes_in_a_row(file, name) for name in columns)
    return max(1, min(2**16, int(_BATCH_BYTES / max(size, 1))))


def _bytes_in_a_row(file: Any, name: str) -> float:
    """Of numbers and lists of numbers, from the type: encoded as a dictionary they seem smaller than they are."""
    import pyarrow

    kind, length = file.schema_arrow.field(name).type, 1
    if pyarrow.types.is_fixed_size_list(kind):
        kind, length = kind.value_type, kind.list_size
    if pyarrow.types.is_primitive(kind):
        return float(length * kind.bit_width / 8)
    metadata = file.metadata
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    leaves = [g.column(i) for g in groups for i in range(g.num_columns) if g.column(i).path_in_schema == name]
    return float(1 + sum(leaf.total_uncompressed_size for leaf in leaves) / max(metadata.num_rows, 1))
