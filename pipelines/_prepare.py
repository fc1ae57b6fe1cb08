"""The command `python -m pipelines.NAME prepare`, which turns public files into the Parquet that a pipeline reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from vrgd_ray import ConfigError


def command(pipeline: str, output: str) -> str:
    """The sentence that tells how a table is made; the end of error messages."""
    return f"make it with: python -m pipelines.{pipeline} prepare --source DOWNLOADED --output {output}"


def need(condition: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def main(
    pipeline: str,
    convert: Callable[[Path, Path], Mapping[str, int]],
    sources: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the command; 2 for sources that cannot be converted.

    Args:
        pipeline: name of its module.
        convert: reads a folder, writes another, and returns the rows of each table.
        sources: what it understands, for --help.
        arguments: the command line; by default that of this process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m pipelines.{pipeline}")
    prepare = parser.add_subparsers(required=True).add_parser("prepare", description=sources)
    prepare.add_argument("--source", type=Path, required=True, help="folder with the downloaded files")
    prepare.add_argument("--output", type=Path, required=True, help="folder for the Parquet files, as data=FOLDER")
    options = parser.parse_args(arguments)
    try:
        need(options.source.is_dir(), f"--source {options.source} is no folder; {sources}")
        options.output.mkdir(parents=True, exist_ok=True)
        for name, rows in convert(options.source, options.output).items():
            print(f"{options.output / name}: {rows:,} rows")
    except (ConfigError, OSError) as error:
        print(f"{parser.prog} prepare: {error}", file=sys.stderr)
        return 2
    return 0


def write_parquet(path: Path, tables: Iterable[Any]) -> int:
    """Write Arrow tables or record batches of one schema one after the other; return the number of rows.

    The file gets its name when it is complete.
    """
    from pyarrow import Table, parquet

    partial, rows = path.with_suffix(".partial"), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        writer: Any = None
        for piece in tables:
            table = piece if isinstance(piece, Table) else Table.from_batches([piece])
            writer = writer or opened.enter_context(parquet.ParquetWriter(partial, table.schema))
            writer.write_table(table, row_group_size=10_000)
            rows += table.num_rows
    need(rows > 0, f"there are no rows for {path.name}.")
    partial.rename(path)
    return rows
