"""The command `python -m pipelines.NAME prepare`, which turns public files into the Parquet that a pipeline reads."""

from __future__ import annotations

import argparse
import pickle
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vrgd_ray import ConfigError

_TABLES = ("train", "test", "documents")


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
    prepare.add_argument(
        "--output", required=True, help="folder for the Parquet files, as data=FOLDER; it must hold no tables yet"
    )
    options = parser.parse_args(arguments)
    try:
        need(options.source.is_dir(), f"--source {options.source} is no folder. {sources}")
        need("://" not in options.output, f"--output {options.output} is a URI; write to a folder, then copy it there.")
        for name, rows in _converted(convert, options.source, Path(options.output)).items():
            print(f"{Path(options.output) / name}: {rows:,} rows")
    except (ConfigError, OSError) as error:
        print(f"{parser.prog} prepare: {error}", file=sys.stderr)
        return 2
    return 0


def _converted(convert: Callable[[Path, Path], Mapping[str, int]], source: Path, output: Path) -> Mapping[str, int]:
    """Convert into a folder beside, so that tables appear in the output all at once or not at all."""
    taken = [path.name for name in _TABLES for path in (output / name, output / f"{name}.parquet") if path.exists()]
    need(not taken, f"--output {output} holds {', '.join(taken)} already; remove them, or choose another folder.")
    need(not output.exists() or output.is_dir(), f"--output {output} is no folder.")
    output.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished_", dir=output))
    try:
        made = convert(source, unfinished)
        for path in list(unfinished.iterdir()):
            path.rename(output / path.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes its reader raise into one sentence that names the file."""
    try:
        yield
    except ConfigError:
        raise
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        pickle.UnpicklingError,
        zlib.error,
    ) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise ConfigError(f"{file} cannot be read ({reason}); is it whole, and of this format?") from error


def write_parquet(path: Path, tables: Iterable[Any]) -> int:
    """Write Arrow tables or record batches of one schema one after the other; return the number of rows."""
    from pyarrow import Table, parquet

    rows = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        writer: Any = None
        for piece in tables:
            table = piece if isinstance(piece, Table) else Table.from_batches([piece])
            writer = writer or opened.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table, row_group_size=10_000)
            rows += table.num_rows
    need(rows > 0, f"there are no rows for {path.name}.")
    return rows
