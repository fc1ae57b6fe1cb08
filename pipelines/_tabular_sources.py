"""Public tables: Census-Income (UCI) as comma-separated values, Criteo's click logs as tab-separated ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines._prepare import need, reading, write_parquet

SOURCES = (
    "The folder holds census-income.data and census-income.test (Census-Income KDD, archive.ics.uci.edu/dataset/117), "
    "Criteo's day_0, day_1, ... (Terabyte click logs, ailab.criteo.com; the last day becomes the test table), or "
    "Criteo's train.txt (Display Advertising Challenge; the last seventh, its last day, does)."
)
CENSUS_COLUMNS = [
    "age",
    "class_of_worker",
    "industry_code",
    "occupation_code",
    "education",
    "wage_per_hour",
    "enrolled_in_edu_last_week",
    "marital_status",
    "major_industry",
    "major_occupation",
    "race",
    "hispanic_origin",
    "sex",
    "labor_union",
    "reason_for_unemployment",
    "employment_status",
    "capital_gains",
    "capital_losses",
    "dividends",
    "tax_filer_status",
    "region_of_previous_residence",
    "state_of_previous_residence",
    "household_family_stat",
    "household_summary",
    "instance_weight",
    "migration_msa",
    "migration_reg",
    "migration_within_reg",
    "same_house_1_year_ago",
    "migration_sunbelt",
    "num_persons_worked_for_employer",
    "family_members_under_18",
    "country_father",
    "country_mother",
    "country_self",
    "citizenship",
    "own_business",
    "veterans_questionnaire",
    "veterans_benefits",
    "weeks_worked",
    "year",
    "label",
]
CENSUS_NUMBERS = [
    "age",
    "industry_code",
    "occupation_code",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "dividends",
    "instance_weight",
    "num_persons_worked_for_employer",
    "own_business",
    "veterans_benefits",
    "weeks_worked",
    "year",
]
CRITEO_COLUMNS = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


def convert_tables(source: Path, output: Path) -> Mapping[str, int]:
    """Tables `train` and `test` from whichever files the folder holds."""
    days = sorted(filter(Path.is_file, source.glob("day_*")), key=lambda day: int(re.sub(r"\D", "", day.name) or 0))
    if (source / "census-income.data").is_file():
        return _census(source, output)
    if (source / "train.txt").is_file():
        return _criteo_file(source / "train.txt", output)
    need(bool(days), f"{source} holds none of these. {SOURCES}")
    twice = len({re.sub(r"\D", "", day.name) for day in days}) < len(days)
    need(not twice, f"{source} holds a day twice: {', '.join(day.name for day in days)}.")
    need(len(days) >= 2, f"{source} holds {days[0].name} alone; the last of at least two days is for the test.")
    tables = {f"train/{day.name}.parquet": day for day in days[:-1]} | {"test.parquet": days[-1]}
    return {name: write_parquet(output / name, _criteo(day)) for name, day in tables.items()}


def _census(source: Path, output: Path) -> Mapping[str, int]:
    files = {"train.parquet": source / "census-income.data", "test.parquet": source / "census-income.test"}
    return {
        name: write_parquet(output / name, _pieces(file, CENSUS_COLUMNS, ",", _census_piece))
        for name, file in files.items()
    }


def _census_piece(texts: Any) -> Any:
    """Blanks go, numbers become numbers, and the label 1 for an income above 50,000."""
    import pyarrow
    from pyarrow import compute

    columns = {}
    for name, column in zip(texts.schema.names, texts, strict=True):
        text = compute.utf8_trim_whitespace(column)
        if name == "label":
            above, below = (compute.starts_with(text, sign) for sign in ("50000+", "- 50000"))
            known = compute.all(compute.or_(above, below)).as_py()
            _check(known, "a label is neither 50000+ nor - 50000")
            text = above.cast(pyarrow.int8())
        elif name in CENSUS_NUMBERS:
            text = text.cast(pyarrow.float64() if name == "instance_weight" else pyarrow.int64())
        columns[name] = text
    return pyarrow.table(columns)


def _criteo_file(file: Path, output: Path) -> Mapping[str, int]:
    total = sum(piece.num_rows for piece in _criteo(file))
    cut = total * 6 // 7
    return {
        "train.parquet": write_parquet(output / "train.parquet", _rows(_criteo(file), 0, cut)),
        "test.parquet": write_parquet(output / "test.parquet", _rows(_criteo(file), cut, total)),
    }


def _rows(pieces: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    first = 0
    for piece in pieces:
        low, high = max(start - first, 0), min(stop - first, piece.num_rows)
        if low < high:
            yield piece.slice(low, high - low)
        first += piece.num_rows


def _criteo(file: Path) -> Iterator[Any]:
    return _pieces(file, CRITEO_COLUMNS, "\t", _criteo_piece)


def _criteo_piece(texts: Any) -> Any:
    """Empty numbers stay empty; categories are text."""
    import pyarrow
    from pyarrow import compute

    columns = {}
    for name, column in zip(texts.schema.names, texts, strict=True):
        if name == "label":
            _check(set(compute.unique(column).to_pylist()) <= {"0", "1"}, "a label is neither 0 nor 1")
            column = column.cast(pyarrow.int8())
        elif name.startswith("I"):
            column = compute.if_else(compute.equal(column, ""), None, column).cast(pyarrow.int64())
        columns[name] = column
    return pyarrow.table(columns)


def _check(condition: bool, message: str) -> None:
    """For `reading`, which adds file and lines."""
    if not condition:
        raise ValueError(message)


def _pieces(file: Path, names: list[str], delimiter: str, convert: Callable[[Any], Any]) -> Iterator[Any]:
    """The file's rows, converted some megabytes at once."""
    first = 1
    for texts in _read(file, names, delimiter):
        with reading(Path(f"{file}, lines {first:,} to {first + texts.num_rows - 1:,},")):
            piece = convert(texts)
        first += texts.num_rows
        yield piece


def _read(file: Path, names: list[str], delimiter: str) -> Iterator[Any]:
    """Record batches of text, some megabytes at once."""
    import pyarrow
    from pyarrow import csv

    with reading(file):
        reader = csv.open_csv(
            file,
            read_options=csv.ReadOptions(column_names=names, block_size=2**22),
            parse_options=csv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        )
        yield from (batch for batch in reader if batch.num_rows)
