"""One `vrgd tune` after the other: each is begun, gone on with, or read where it has finished."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Result = dict[str, Any]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search of a table."""

    name: str
    """Name of its run folder."""
    family: str
    """Base optimizer it is about."""
    variant: str = "vr"
    """What the scale of its VR optimizers is: "vr", or a control or setting that is compared with it."""
    base: str = "base"
    """What its base optimizers are called: "base", or what was tuned otherwise."""
    arguments: tuple[str, ...]
    """What `vrgd tune` is called with."""


class SearchError(RuntimeError):
    """A search failed or was interrupted; the message says which, `status` is its exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Searches:
    """Runs searches in a folder. What has finished there is read, not trained again.

    Args:
        folder: where the run folders go.
        machines: flags of `vrgd tune` for this machine.
    """

    def __init__(self, folder: Path, machines: tuple[str, ...] = ()) -> None:
        self._folder, self._machines = folder.absolute(), machines

    def run(self, search: Search) -> Result:
        """The finished search's result.json.

        Raises:
            SearchError: it did not finish.
        """
        path, status = self._folder / search.name / "result.json", 0
        if not (path.exists() and _read(path)["status"] == "finished"):
            status = self._start(search)
        result = _read(path) if path.exists() else {"status": "refused", "reason": "see above"}
        if result["status"] != "finished":
            raise SearchError(f"{search.name} was {result['status']}: {result['reason'].rstrip('.')}.", status or 1)
        return result

    def _start(self, search: Search) -> int:
        begun = (self._folder / search.name).exists()
        output = ["--output", str(self._folder), "--name", search.name, *(["--resume"] if begun else [])]
        command = [sys.executable, "-m", "vrgd_ray.tune", *search.arguments, *self._machines, *output]
        print(f"{search.name}: vrgd tune {' '.join(command[3:])}", flush=True)
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def as_yaml(value: Any) -> str:
    """A value as `--pipeline-args` reads it, in one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=float("inf"))).removesuffix("\n...\n").strip()


def _read(path: Path) -> Result:
    result: Result = json.loads(path.read_text())
    return result
