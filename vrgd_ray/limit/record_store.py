"""Small records in a folder of any file system: each an object of its own, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

from vrgd_ray.config import ConfigError, StorageError, first_line
from vrgd_ray.limit.lock import locked

_NAME = re.compile(r"(\d+)-.*\.json")
_OWNER = "owner.json"
_READERS = 16


class RecordStore:
    """Appends and reads records. One process at a time may append: see `claim`."""

    def __init__(self, location: str, files: fs.FileSystem | None = None) -> None:
        """Use a folder or pyarrow URI (s3://bucket/folder), or a folder within the file system given.

        Raises:
            ConfigError: the URI cannot be used.
        """
        self.location = self._folder = location
        if files is None and "://" in location:
            with self._usable():
                files, self._folder = fs.FileSystem.from_uri(location)
        self._files = files or fs.LocalFileSystem()
        self._local = isinstance(self._files, fs.LocalFileSystem)
        self._next: int | None = None

    @property
    def empty(self) -> bool:
        """Whether it holds no record, whole or not."""
        return not self._paths()

    def read(self) -> list[dict[str, Any]]:
        """Every whole record in the order of writing; one that a kill cut short is left out."""
        paths = self._paths()
        self._next = 1 + max((_number(path) for path in paths), default=-1)
        with ThreadPoolExecutor(_READERS) as readers:  # an object store takes its time over each
            records = list(readers.map(self._read_one, paths))
        return [record for record in records if record is not None]

    def append(self, record: dict[str, Any], label: str) -> None:
        """Write a record; `label` makes its name readable.

        Raises:
            StorageError: there is no room, or the storage cannot be reached.
        """
        if self._next is None:
            self._next = 1 + max((_number(path) for path in self._paths()), default=-1)
        self._write(f"{self._next:06d}-{label}.json", record)
        self._next += 1

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Keep other processes from appending, for the time of the context.

        Raises:
            ConfigError: another process has claimed it.
        """
        if self._local:
            with locked(Path(self._folder)):
                yield
            return
        mine = {"host": socket.gethostname(), "process": os.getpid(), "claim": uuid.uuid4().hex}
        self._refuse_owner_but(None)
        self._write(_OWNER, mine)
        self._refuse_owner_but(mine)  # of two that come at once, the one that was overwritten goes
        try:
            yield
        finally:
            with suppress(OSError):
                self._files.delete_file(f"{self._folder}/{_OWNER}")

    def _refuse_owner_but(self, mine: dict[str, Any] | None) -> None:
        owner = self._read_one(f"{self._folder}/{_OWNER}")
        if owner in (None, mine) or (owner["host"] == socket.gethostname() and not _alive(owner["process"])):
            return
        raise ConfigError(
            f"the search in {self.location} belongs to process {owner['process']} on {owner['host']}; if that has "
            f"ended without a word, delete {self.location}/{_OWNER}, else choose another --name."
        )

    def _paths(self) -> list[str]:
        selector = fs.FileSelector(self._folder, allow_not_found=True)
        with self._usable():
            found = self._files.get_file_info(selector)
        return sorted(info.path for info in found if _NAME.fullmatch(info.base_name))

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the storage {self.location} cannot be used: {first_line(error)}; check --storage."
            ) from error

    def _read_one(self, path: str) -> dict[str, Any] | None:
        try:
            with self._files.open_input_stream(path) as stream:
                record: dict[str, Any] = json.loads(stream.read())
        except (FileNotFoundError, ValueError):
            return None
        return record

    def _write(self, name: str, record: dict[str, Any]) -> None:
        content = json.dumps(record).encode()
        if self._local:
            write_whole(Path(self._folder) / name, content)
            return
        try:
            self._files.create_dir(self._folder, recursive=True)
            # A put: other readers see the object once the stream is closed, or never.
            with self._files.open_output_stream(f"{self._folder}/{name}") as stream:
                stream.write(content)
        except OSError as error:
            raise StorageError(self.location, error) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader, and no kill or loss of power, ever sees a part of it.

    Raises:
        StorageError: there is no room for it, or it may not be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise StorageError(str(path.parent), error) from error


def _number(path: str) -> int:
    return int(path.rpartition("/")[2].partition("-")[0])


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
