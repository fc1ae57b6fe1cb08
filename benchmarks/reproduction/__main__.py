"""Repeat a published table, or the measurements it is held against.

    python -m benchmarks.reproduction linear_regression
    python -m benchmarks.reproduction table5 --data data/fashion_mnist

Every training run is one of `vrgd tune`, whose folders stay in --output: what has finished is not trained again. The
metric of each seed, the curves and the limits go to benchmarks/reproduction/results as Parquet, with figures and a page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.reproduction import regression, rows, tables
from benchmarks.reproduction.searches import SearchError, Searches
from benchmarks.reproduction.tables import Found

RESULTS = Path(__file__).parent / "results"
TABLES: dict[str, str] = {
    "linear_regression": "steps saved by VR-SGD; curves over the bounds and the number of groups; needs no data",
    "table4": "DLRM on Census-Income, SGD under square-root scaling",
    "clicks_tuned": "the same, every cell tuned alike, with controls",
    "table5": "a residual network on Fashion-MNIST, four optimizers under square-root scaling",
    "residual_tuned": "the same, every cell tuned alike, with controls",
    "residual_too_high": "the same with SGD at 4 and 8 times the tuned rate",
    "residual_limit": "the same, the largest batch as a user would find it, beside the noise scale",
    "perceptron_tuned": "a perceptron on Fashion-MNIST, every cell tuned alike, with controls",
    "perceptron_limit": "the same, the largest batch as a user would find it, beside the noise scale",
}


def build_parser() -> argparse.ArgumentParser:
    """All flags."""
    lines = [f"  {name:<20}{text}" for name, text in TABLES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduction",
        description=__doc__,
        epilog="tables:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=TABLES, metavar="TABLE", help="one of those below")
    parser.add_argument("--data", default="", help="folder of the tables train and test (docs/pipelines.md)")
    parser.add_argument("--output", type=Path, default=Path("runs/reproduction"), help="folder of the searches")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of Parquet, figures and page")
    parser.add_argument("--gpu", action="store_true", help="table5 at its size: ResNet-56 on CIFAR-10, a GPU for each trial")
    return parser


def main() -> int:
    """Run one table; return the exit status."""
    options = build_parser().parse_args()
    if options.table != "linear_regression" and not options.data:
        print(f"{options.table} needs --data, the folder of its Parquet tables (docs/pipelines.md).", file=sys.stderr)
        return 2
    machines = ("--gpus-per-worker", "1") if options.gpu else ("--concurrent-trials", "2")
    searches = Searches(options.output, machines)
    try:
        found = list(_searches(options.table, options.gpu)(searches.run, str(Path(options.data).absolute())))
    except SearchError as error:
        print(error, file=sys.stderr)
        return 1
    _write(options.results, options.table, found)
    return 0


def _searches(table: str, gpu: bool) -> Callable[..., Found]:
    residual = tables.RESIDUAL_56 if gpu else tables.RESIDUAL
    return {
        "linear_regression": lambda run, data: regression.curves(run),
        "table4": tables.CLICKS.scaled,
        "clicks_tuned": tables.CLICKS.equal_tuning,
        "table5": residual.scaled,
        "residual_tuned": residual.equal_tuning,
        "residual_too_high": lambda run, data: residual.too_high(run, data, "sgd", 512, (4, 8)),
        "perceptron_tuned": tables.PERCEPTRON.equal_tuning,
    }[table]


def _write(folder: Path, table: str, found: list[tuple[tables.Search, tables.Result]]) -> None:
    for name, build in (("seeds", rows.seed_rows), ("curves", rows.curve_rows), ("limits", rows.limit_rows)):
        rows.write([row for search, result in found for row in build(search, result)], folder / f"{table}_{name}.parquet")


if __name__ == "__main__":
    sys.exit(main())
