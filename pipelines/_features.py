"""Columns of a table as numbers: logarithms of quantities, rows of embedding tables for categories."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from pipelines._prepare import need
from vrgd_ray import ParquetTable

Array: TypeAlias = np.ndarray[Any, Any]
_ROWS_LOOKED_AT = 1_000_000


class Features:
    """What each column of the training table becomes.

    The categories met in the first million rows get a row of their column's embedding table each, the most frequent
    first; all others, and those beyond `table_size`, share `hashed` further rows by a hash of their text. So memory is
    bounded however many categories there are, and a category never seen in training has a place.

    Args:
        table: the training table.
        codes: columns of whole numbers that name categories.
        ignored: columns that are no features.
        table_size: most categories of a column with rows of their own.
        hashed: rows that all its other categories share.
    """

    def __init__(
        self, table: ParquetTable, codes: Sequence[str], ignored: Sequence[str], table_size: int, hashed: int
    ) -> None:
        self._table, self.table_size, self.hashed = table, table_size, hashed
        kinds = {name: _kind(table, name, codes) for name in table.schema.names if name not in (*ignored, "label")}
        self.categories = [name for name, kind in kinds.items() if kind == "category"]
        self.numbers = [name for name, kind in kinds.items() if kind == "number"]
        need(bool(self.categories), f"the table {table.location} has no columns of text or codes; {table.remedy}")
        need(bool(self.numbers), f"the table {table.location} has no columns of numbers; {table.remedy}")

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        return [*self.categories, *self.numbers, "label"]

    @property
    def key(self) -> str:
        """All that the numbers depend on besides the table they are of."""
        return f"features 1 {self._table.fingerprint} {self.categories} {self.numbers} {self.table_size} {self.hashed}"

    def check(self, other: ParquetTable) -> None:
        """Refuse another table whose columns would not be read alike.

        Raises:
            ConfigError: a column is missing, or holds another type, in which the same category has another text.
        """
        other.check_columns(self.columns)
        for name in [*self.categories, *self.numbers]:
            kind, own = _type(other, name), _type(self._table, name)
            alike = _is_number(kind) if name in self.numbers else _same_text(kind, own)
            need(
                alike,
                f"{name} holds {kind} in the table {other.location} but {own} in {self._table.location}; write it as "
                f"{own} in both.",
            )

    @cached_property
    def vocabularies(self) -> list[dict[str, int]]:
        """Category to row, for each categorical column."""
        counts: list[Counter[str]] = [Counter() for _ in self.categories]
        seen = 0
        for batch in self._table.batches(self.categories):
            for counter, column in zip(counts, batch, strict=True):
                pairs = _texts(column).value_counts()
                counter.update(dict(zip(pairs.field(0).to_pylist(), pairs.field(1).to_pylist(), strict=True)))
            seen += batch.num_rows
            if seen >= _ROWS_LOOKED_AT:
                break
        return [_numbered(counter, self.table_size) for counter in counts]

    @property
    def table_sizes(self) -> list[int]:
        """Rows of each embedding table."""
        return [len(vocabulary) + self.hashed for vocabulary in self.vocabularies]

    def converter(self) -> Callable[[Any], Mapping[str, Array]]:
        """Rows of a table -> `categories`, int32 [rows, columns], `numbers`, float32 [rows, columns], `label`."""
        vocabularies = self.vocabularies

        def convert(batch: Any) -> Mapping[str, Array]:
            columns = dict(zip(batch.schema.names, batch, strict=True))
            categories = [
                self._rows(columns[name], vocabulary)
                for name, vocabulary in zip(self.categories, vocabularies, strict=True)
            ]
            return {
                "categories": np.stack(categories, 1),
                "numbers": np.stack([_logarithm(columns[name]) for name in self.numbers], 1),
                "label": _labels(columns["label"]),
            }

        return convert

    def _rows(self, column: Any, vocabulary: dict[str, int]) -> Array:
        coded = _texts(column).dictionary_encode()  # each text is looked up once
        rows = [vocabulary.get(text, self._hashed_row(text, vocabulary)) for text in coded.dictionary.to_pylist()]
        numbered: Array = np.asarray(rows, np.int32)[coded.indices.to_numpy()]
        return numbered

    def _hashed_row(self, text: str, vocabulary: dict[str, int]) -> int:
        return len(vocabulary) + zlib.crc32(text.encode()) % self.hashed


def _kind(table: ParquetTable, name: str, codes: Sequence[str]) -> str:
    from pyarrow import types

    kind = _type(table, name)
    if types.is_string(kind) or types.is_large_string(kind) or name in codes:
        return "category"
    need(
        _is_number(kind),
        f"{name} in the table {table.location} holds {kind}, neither numbers nor text; list it in ignored.",
    )
    return "number"


def _type(table: ParquetTable, name: str) -> Any:
    from pyarrow import types

    kind = table.schema.field(name).type
    return kind.value_type if types.is_dictionary(kind) else kind  # as pandas writes its categoricals


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _same_text(first: Any, second: Any) -> bool:
    """Whether a category is the same text in both types; 20000000000, kept with a decimal point, is 2e+10."""
    from pyarrow import types

    alike = (types.is_integer, lambda kind: types.is_string(kind) or types.is_large_string(kind))
    return first == second or any(test(first) and test(second) for test in alike)


def _texts(column: Any) -> Any:
    """A column of text or whole numbers as text; an empty field is a category of its own."""
    import pyarrow

    return column.cast(pyarrow.large_string()).fill_null("")


def _numbered(counter: Counter[str], most: int) -> dict[str, int]:
    """The most frequent first; of equally frequent ones the first of the alphabet, so that all agree."""
    ordered = sorted(counter, key=lambda text: (-counter[text], text))
    return {text: number for number, text in enumerate(ordered[:most])}


def _labels(column: Any) -> Array:
    """Refuses all but 0 and 1: anything else would be learnt as if it were a chance."""
    others = sorted(str(value) for value in column.unique().to_pylist() if value not in (0, 1))
    need(not others, f"label holds {', '.join(others[:3])}; it must be 0 or 1 in every row.")
    labels: Array = column.to_numpy(zero_copy_only=False).astype(np.float32)
    return labels


def _logarithm(column: Any) -> Array:
    """sign(x) log(1 + |x|), since amounts of money and counts spread over orders of magnitude; 0 for an empty field."""
    import pyarrow

    numbers = column.cast(pyarrow.float64(), safe=False)  # beyond 2**53 the logarithm is the same to seven digits
    values = np.nan_to_num(numbers.fill_null(0.0).to_numpy(zero_copy_only=False))
    logarithm: Array = np.copysign(np.log1p(np.abs(values)), values).astype(np.float32)
    return logarithm
