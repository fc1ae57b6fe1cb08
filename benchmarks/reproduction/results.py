"""The files of a table: Parquet, a figure, a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reproduction.rows import Row, curve_rows, limit_rows, read, seed_rows, write
from benchmarks.reproduction.searches import Result, Search


@dataclass(frozen=True)
class Results:
    """Where the results of a table are."""

    folder: Path
    """Folder of all tables."""
    name: str
    """Name of the table, with which its files begin."""

    @property
    def page(self) -> Path:
        """The numbers as Markdown."""
        return self.folder / f"{self.name}.md"

    @property
    def figure(self) -> Path:
        """The figure."""
        return self.folder / f"{self.name}.svg"

    @property
    def seeds(self) -> list[Row]:
        """The metric of every seed."""
        return read(self._parquet("seeds"))

    @property
    def curves(self) -> list[Row]:
        """Points along the training of every cell."""
        return read(self._parquet("curves"))

    @property
    def limits(self) -> list[Row]:
        """The largest accepted batch of every search and optimizer."""
        return read(self._parquet("limits"))

    def write(self, found: Sequence[tuple[Search, Result]]) -> None:
        """Keep what the searches found."""
        for kind, rows_of in (("seeds", seed_rows), ("curves", curve_rows), ("limits", limit_rows)):
            write([row for search, result in found for row in rows_of(search, result)], self._parquet(kind))

    @property
    def exist(self) -> bool:
        """Whether the table has been run."""
        return all(self._parquet(kind).exists() for kind in ("seeds", "curves", "limits"))

    def _parquet(self, kind: str) -> Path:
        return self.folder / f"{self.name}_{kind}.parquet"
