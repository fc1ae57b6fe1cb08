"""`runs/NAME/`: where a search writes its results, and the place in the storage where it keeps its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path

from vrgd_ray.config import require
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.lock import locked
from vrgd_ray.limit.plan import SearchPlan
from vrgd_ray.limit.record_store import write_whole

LEDGER = "ledger"
STORAGE_FILE = "storage.txt"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one search."""

    path: Path
    """Where it is, whether or not it exists yet."""
    resume: bool = False
    """Whether the search in it is to go on; else it must not exist."""
    base: str | None = None
    """Folder or URI that holds ledger and checkpoints, below the run's name; None for the run's own folder."""

    @classmethod
    def choose(
        cls, output: Path, name: str | None, default: str, *, resume: bool, storage: str | None = None
    ) -> RunFolder:
        """The folder of a new search, or of one to resume. Without a name: `default`, `default-2`, ...

        Raises:
            ConfigError: the name is taken, or there is nothing to resume.
        """
        base = storage if storage is None or "://" in storage else str(Path(storage).resolve())
        if name is not None:
            require(
                name == Path(name).name and name not in ("", ".", ".."), f"--name {name!r} must be a plain file name."
            )
            folder = cls(output / name, base=base)
        else:
            names = (default if number == 1 else f"{default}-{number}" for number in count(1))
            folder = _unused((cls(output / each, base=base) for each in names), or_last=resume)
        if resume:
            require(folder.exists, f"nothing to resume: there is no run in {folder.place}.")
            return replace(folder, resume=True, base=folder._base_of_last_start())
        require(not folder.exists, f"{folder.place} exists; choose another --name, or go on with it by --resume.")
        return folder

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Make the folder, and the ledger where that lies elsewhere, this process's own.

        Raises:
            ConfigError: another run is under way in it, or has been since the name was chosen.
        """
        with locked(self.path), self.ledger.claim() if self.base is not None else nullcontext():
            begun = self.ledger.begun
            require(self.resume or not begun, f"{self.place} exists; choose another --name, or go on by --resume.")
            yield

    @property
    def exists(self) -> bool:
        """Whether anything is here already."""
        return self.path.exists() or (self.base is not None and self.ledger.begun)

    @property
    def place(self) -> str:
        """Where the search is, as users know it."""
        return str(self.path) if self.base is None else f"{self.base.rstrip('/')}/{self.path.name}"

    @property
    def storage(self) -> str:
        """Folder or URI for Ray's files and checkpoints."""
        return str((self.path / "ray").resolve()) if self.base is None else self._in_base

    @cached_property
    def ledger(self) -> Ledger:
        """The search's record."""
        return Ledger(self.path / LEDGER if self.base is None else f"{self._in_base}/{LEDGER}")

    @property
    def _in_base(self) -> str:
        return f"{str(self.base).rstrip('/')}/{self.path.name}"

    def begin(self, plan: SearchPlan) -> int:
        """Note the plan, and where the ledger lies, for a later start; return how often the plan has been extended."""
        self.note_storage()
        return self.ledger.begin(plan.to_dict())

    def note_storage(self) -> None:
        """Note the storage, for a later start."""
        write_whole(self.path / STORAGE_FILE, (self.base or "").encode())

    def _base_of_last_start(self) -> str | None:
        note = self.path / STORAGE_FILE
        if not note.exists():
            return self.base
        before = note.read_text() or None
        require(
            self.base in (None, before),
            f"the search in {self.path} keeps its ledger in {before or self.path}, not in --storage {self.base}; "
            "leave --storage out.",
        )
        return before

    def adopt(self, plan: SearchPlan) -> SearchPlan:
        """The plan with the width of the search being resumed, which shaped its suggestions."""
        return replace(plan, width=self.ledger.saved_plan().get("width", plan.width))


def _unused(folders: Iterator[RunFolder], *, or_last: bool) -> RunFolder:
    """The first folder that does not exist, or the one before it if there is one and that is wanted."""
    previous = None
    for folder in folders:
        if not folder.exists:
            return previous if or_last and previous is not None else folder
        previous = folder
    raise AssertionError("numbers do not end")
