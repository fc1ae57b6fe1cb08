"""Repeat a published table, or the measurements it is held against.

    python -m benchmarks.reproduction linear_regression
    python -m benchmarks.reproduction table5 --data data/fashion_mnist

Every training run is one of `vrgd tune`, whose folders stay in --output: what has finished is not trained again. The
metric of each seed, the curves and the limits go to benchmarks/reproduction/results as Parquet, with a figure and a
page that are drawn from them. docs/results.md says what came out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.reproduction.catalogue import TABLES, table_named
from benchmarks.reproduction.results import Results
from benchmarks.reproduction.searches import SearchError, Searches

RESULTS = Path(__file__).parent / "results"


def build_parser() -> argparse.ArgumentParser:
    """All flags."""
    lines = [f"  {name:<20}{table.about}" for name, table in TABLES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduction",
        description=__doc__,
        epilog="tables:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=TABLES, metavar="TABLE", help="one of those below")
    parser.add_argument("--data", help="folder of the tables train and test (docs/pipelines.md)")
    parser.add_argument("--output", type=Path, default=Path("runs/reproduction"), help="folder of the searches")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of Parquet, figures and pages")
    parser.add_argument("--redraw", action="store_true", help="train nothing; draw figure and page from the Parquet")
    parser.add_argument(
        "--gpu", action="store_true", help="a residual table at its size: ResNet-56 on CIFAR-10, a GPU for each trial"
    )
    return parser


def main() -> int:
    """Run one table; return the exit status."""
    parser = build_parser()
    options = parser.parse_args()
    table, results = table_named(options.table, gpu=options.gpu), Results(options.results, options.table)
    if options.redraw and not results.exist:
        parser.error(f"{options.results} has no results of {options.table} to draw; leave out --redraw to run it.")
    if not options.redraw:
        if table.needs_data and not options.data:
            parser.error(f"{options.table} needs --data, the folder of its Parquet tables (docs/pipelines.md).")
        machines = ("--gpus-per-worker", "1") if options.gpu else ("--concurrent-trials", "2")
        try:
            found = table.searches(Searches(options.output, machines).run, str(Path(options.data or "").absolute()))
            results.write(list(found))
        except SearchError as error:
            print(error, file=sys.stderr)
            return error.status
    table.draw(results, f"python -m benchmarks.reproduction {options.table}")
    print(results.page.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
