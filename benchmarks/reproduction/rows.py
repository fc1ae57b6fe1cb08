"""Results of searches as rows: one for each cell and seed, one for each point of a curve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reproduction.searches import Result, Search

Row = dict[str, Any]
_RECIPE = ("lr", "weight_decay", "num_groups", "gsnr_lower", "gsnr_upper")


def seed_rows(search: Search, result: Result) -> list[Row]:
    """The metric of every fresh seed on test data; one row without a value for a cell that diverged."""
    return [row for cell in _cells(result) for row in _seeds(search, cell)]


def curve_rows(search: Search, result: Result) -> list[Row]:
    """Validation metric, mean over the seeds, and medians of noise scale and scale along the training."""
    return [
        {"search": search.name, "family": search.family, "variant": variant_of(search, curve["optimizer"])}
        | {"optimizer": curve["optimizer"], "batch_size": curve["batch_size"]}
        | {"samples": samples, "value": curve["values"][place]}
        | {name: curve["series"][name][place] if name in curve["series"] else None for name in _SERIES}
        for curve in result["curves"]
        for place, samples in enumerate(curve["samples"])
    ]


def limit_rows(search: Search, result: Result) -> list[Row]:
    """Largest accepted batch of each optimizer beside the gradient noise scale of the reference."""
    return [
        {"search": search.name, "optimizer": optimizer, "reference_batch_size": result["reference"]["batch_size"]}
        | {"noise_scale": result["reference"]["noise_scale"], "largest_accepted": _largest(result, optimizer)}
        | {"largest_tried": max(result["batch_sizes"])}
        | {name: result[name] for name in ("margin", "relative_margin", "alpha")}
        for optimizer in result["optimizers"]
    ]


def write(rows: list[Row], path: Path) -> None:
    """Write rows as Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def read(path: Path) -> list[Row]:
    """Read rows back."""
    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def variant_of(search: Search, optimizer: str) -> str:
    """What the search calls its VR optimizers, or the others."""
    return search.variant if optimizer.startswith("vr_") else search.base


_SERIES = ("noise_scale", "noise_scale_low", "noise_scale_high", "mean_scale", "step_ratio")


def _cells(result: Result) -> Iterator[Row]:
    yield result["reference"]
    yield from result["cells"]


def _seeds(search: Search, cell: Row) -> Iterator[Row]:
    recipe = cell["recipe"] or {}
    facts = {
        "search": search.name,
        "family": search.family,
        "variant": variant_of(search, cell["optimizer"]),
        **{name: cell[name] for name in ("optimizer", "batch_size", "steps", "noise_scale")},
        **{name: recipe.get(name) for name in _RECIPE},
    }
    # A cell of which a seed failed has no values at all; results of before `failed_seeds` list those among the seeds.
    whole = len(cell["values"]) == len(cell["seeds"]) > 0 and not cell.get("failed_seeds")
    for seed, value in zip(cell["seeds"], cell["values"], strict=True) if whole else [(None, None)]:
        yield facts | {"seed": seed, "value": value}


def _largest(result: Result, optimizer: str) -> int | None:
    claimed = [c["batch_size"] for c in result["cells"] if c["optimizer"] == optimizer and c["claim"] == "confirmed"]
    return max(claimed, default=None)
