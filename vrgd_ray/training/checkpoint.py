"""Training states in a folder or object store: whole or not at all, the newest few, read without running any code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from pyarrow import fs

from vrgd_ray.config import ConfigError, first_line, require

_NAME = re.compile(r"step_(\d+)\.pt")
_PARTIAL = ".partial"
_DAMAGED = ".damaged"


class CheckpointStore:
    """The checkpoints of one run, `step_000000120.pt` after 120 steps.

    Args:
        location: a folder, or a URI that pyarrow understands (s3://bucket/path).
        keep: newest states to keep; with a single one, a file that is damaged later would lose the run.

    Raises:
        ConfigError: pyarrow knows no such location.
    """

    def __init__(self, location: str, keep: int = 2) -> None:
        try:
            uri = location if "://" in location else os.path.abspath(location)
            self._files, self._folder = fs.FileSystem.from_uri(uri)
        except (ValueError, OSError) as error:
            raise ConfigError(f"the storage {location} cannot be used: {error}") from error
        self.location, self.keep = location, keep
        self._local = isinstance(self._files, fs.LocalFileSystem)

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            ConfigError: the storage takes no folder.
        """
        try:
            self._files.create_dir(self._folder)
        except OSError as error:
            raise ConfigError(f"the storage {self.location} cannot be used: {error}") from error

    def steps(self) -> list[int]:
        """Steps of the states there are, the newest first; damaged ones included."""
        found = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        names = [match for info in found if (match := _NAME.fullmatch(info.base_name))]
        return sorted((int(match[1]) for match in names), reverse=True)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a state, then remove those that are no longer among the newest.

        A reader never sees half a state: on a disk it gets its name when it is complete, and object stores show an
        object when it is closed.

        Raises:
            OSError: the storage is full or cannot be reached; what was there before is untouched.
        """
        self._files.create_dir(self._folder)
        name = self._path(step)
        if self._local:
            partial = Path(name + _PARTIAL)
            try:
                _write_to_disk(partial, state)
                os.replace(partial, name)
            finally:
                partial.unlink(missing_ok=True)
        else:
            with self._files.open_output_stream(name) as stream:
                torch.save(state, stream)
        self._remove_old()

    def load(self, step: int) -> dict[str, Any]:
        """Read a state, tensors on the CPU. `weights_only` refuses anything but tensors and plain data.

        Raises:
            Exception: whatever zipfile and torch raise for a damaged file.
        """
        with self._files.open_input_file(self._path(step)) as stream:
            _check_sums(stream)
            stream.seek(0)
            state: dict[str, Any] = torch.load(stream, map_location="cpu", weights_only=True)
        return state

    def newest(self, say: Callable[[str], None]) -> tuple[int, dict[str, Any]] | None:
        """Step and state of the newest checkpoint that can be read; None where there is none.

        Each that cannot is said, and set aside under another name, so that it does not count among the newest.

        Raises:
            ConfigError: there are checkpoints, and not one can be read.
            OSError: the storage does not answer.
        """
        damaged = []
        for step in self.steps():
            try:
                state = self.load(step)
            except OSError:
                raise
            except Exception as error:  # truncated, overwritten, not plain data: it is of no use
                damaged.append(step)
                say(f"The checkpoint {self._path(step)} cannot be read: {failure_reason(error)}.")
            else:
                self._set_aside(damaged)
                return step, state
        require(
            not damaged,
            f"not one of the {len(damaged)} checkpoints in {self.location} can be read; delete them to begin anew.",
        )
        return None

    def _set_aside(self, damaged: list[int]) -> None:
        for step in damaged:
            self._files.move(self._path(step), self._path(step) + _DAMAGED)

    def _remove_old(self) -> None:
        for old in self.steps()[self.keep :]:
            self._files.delete_file(self._path(old))
        if self._local:  # what a kill left behind in the middle of a write
            for partial in Path(self._folder).glob(f"step_*{_PARTIAL}"):
                partial.unlink()

    def _path(self, step: int) -> str:
        return f"{self._folder}/step_{step:09d}.pt"


def failure_reason(error: BaseException) -> str:
    """What went wrong, in one line; torch hides the system's own words behind an error of its zip writer."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return first_line(cause or error).partition(". ")[0]


def _check_sums(stream: Any) -> None:
    """Refuse a state with a part that is not what was written: torch itself would load other numbers without a word."""
    with ZipFile(stream) as archive:
        part = archive.testzip()
    if part is not None:
        raise BadZipFile(f"its part {part} is damaged")


def _write_to_disk(path: Path, state: dict[str, Any]) -> None:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
