"""`runs/NAME/`: where a search keeps its ledger and its results."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from vrgd_ray.config import ConfigError, require
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.plan import SearchPlan

LEDGER_FILE = "ledger.jsonl"
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one search."""

    path: Path
    """Where it is, whether or not it exists yet."""
    resume: bool = False
    """Whether the search in it is to go on; else it must not exist."""

    @classmethod
    def choose(cls, output: Path, name: str | None, default: str, *, resume: bool) -> RunFolder:
        """The folder of a new search, or of one to resume. Without a name: `default`, `default-2`, ...

        Raises:
            ConfigError: the name is taken, or there is nothing to resume.
        """
        folder = cls._named(output, name) if name is not None else cls._numbered(output, default, last=resume)
        if resume:
            require(folder.exists, f"nothing to resume: there is no search in {folder.path}.")
        else:
            require(not folder.exists, f"{folder.path} exists; choose another --name, or go on with it by --resume.")
        return replace(folder, resume=resume)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Make the folder this process's own; one that is left without a search is removed again.

        Raises:
            ConfigError: another search is running in it, or has been since the name was chosen.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK_FILE).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another search is running in {self.path}; choose another --name.") from None
            begun = self.ledger.path.exists()
            require(self.resume or not begun, f"{self.path} exists; choose another --name, or go on by --resume.")
            try:
                yield
            finally:
                (self.path / LOCK_FILE).unlink()
                with suppress(OSError):  # not empty: a search has begun
                    self.path.rmdir()

    @property
    def exists(self) -> bool:
        """Whether anything is here already."""
        return self.path.exists()

    @property
    def ledger(self) -> Ledger:
        """The search's record."""
        return Ledger(self.path / LEDGER_FILE)

    def adopt(self, plan: SearchPlan) -> SearchPlan:
        """The plan with the width of the search being resumed, which shaped its suggestions."""
        return replace(plan, width=self.ledger.saved_plan().get("width", plan.width))

    @classmethod
    def _named(cls, output: Path, name: str) -> RunFolder:
        require(name == Path(name).name and name not in ("", ".", ".."), f"--name {name!r} must be a plain file name.")
        return cls(output / name)

    @classmethod
    def _numbered(cls, output: Path, default: str, *, last: bool) -> RunFolder:
        previous = None
        for folder in cls._numbers(output, default):
            if not folder.exists:
                return previous if last and previous is not None else folder
            previous = folder
        raise AssertionError("numbers do not end")

    @classmethod
    def _numbers(cls, output: Path, default: str) -> Iterator[RunFolder]:
        yield cls(output / default)
        yield from (cls(output / f"{default}-{number}") for number in count(2))
