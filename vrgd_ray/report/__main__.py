"""`python -m vrgd_ray.report`: rebuild the reports of searches, and compare several side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vrgd_ray import cli
from vrgd_ray.report import render_comparison, render_html

SCHEMA_VERSION = 1
"""Newest layout of result.json that this version can read."""

DESCRIPTION = """\
Rebuild the report of one or more searches, and compare several of them side by side.

For each NAME, OUTPUT/NAME/report.html is written anew from OUTPUT/NAME/result.json. With two names or more, one page
with their verdicts, key numbers and figures is written as well. Pages need no network and no other file, so they can be
sent as they are; result.json is never changed, and nothing is trained.
"""

EPILOG = """\
examples:
  python -m vrgd_ray.report digits                          runs/digits/report.html
  python -m vrgd_ray.report digits digits-2                 both, and runs/comparison.html
  python -m vrgd_ray.report a b c --comparison abc.html     the comparison somewhere else
"""


def build_parser() -> argparse.ArgumentParser:
    """All arguments, with what they mean and their defaults."""
    parser = argparse.ArgumentParser(
        prog="vrgd report", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="name of a search, its folder in --output")
    parser.add_argument(
        "--output", type=Path, default=Path("runs"), help="folder the searches are in (default: %(default)s)"
    )
    parser.add_argument("--comparison", type=Path, metavar="FILE", help="default: comparison.html in --output")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 done, 2 bad input."""
    return cli.run(_main, build_parser(), arguments)


def _main(options: argparse.Namespace) -> int:
    from vrgd_ray.config import require

    names = list(dict.fromkeys(options.names))
    require(options.comparison is None or len(names) > 1, "--comparison needs two searches or more; name them.")
    results = {name: _read(options.output, name) for name in names}  # all, before the first page is written
    for name, result in results.items():
        _write(options.output / name / "report.html", render_html(result))
    if len(results) > 1:
        page = render_comparison([{**result, "name": name} for name, result in results.items()])
        _write(options.comparison or options.output / "comparison.html", page)
    return 0


def _read(output: Path, name: str) -> dict[str, Any]:
    """The result of one search.

    Raises:
        ConfigError: there is none, or it cannot be read; the message says what to do.
    """
    from vrgd_ray.config import ConfigError, nearest, require

    path = output / name / "result.json"
    if not name or not path.parent.is_dir():
        known = _searches(output)
        hint = nearest(name, known) if known else "it holds none; give --output the folder that tune was given."
        raise ConfigError(f"no search {name!r} in {output}: {hint}")
    if not path.exists():
        raise ConfigError(f"{path} is missing: the search is still running, or was killed; go on with it by --resume.")
    try:
        # NaN and infinities, which older versions wrote, are numbers that are not known.
        result = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error
    versioned = isinstance(result, dict) and isinstance(result.get("schema_version"), int)
    require(versioned, f"{path} is no result of a search: it has no schema_version.")
    version = result["schema_version"]
    require(version <= SCHEMA_VERSION, f"{path} was written by a newer vrgd_ray (schema_version {version}); update.")
    found: dict[str, Any] = result
    return found


def _searches(output: Path) -> list[str]:
    return sorted(path.parent.name for path in output.glob("*/result.json"))


def _write(path: Path, page: str) -> None:
    from vrgd_ray.config import ConfigError

    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}.") from error
    print(path)


if __name__ == "__main__":
    sys.exit(main())
