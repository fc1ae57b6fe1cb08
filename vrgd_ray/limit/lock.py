"""One process at a time in a folder; the system itself lets go when the process ends, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vrgd_ray.config import ConfigError

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder this process's own; one that is left empty is removed again.

    Raises:
        ConfigError: another run is under way in it, or it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write to {folder}: {error.strerror}; choose another --output or --storage."
        ) from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another run is under way in {folder}; choose another --name.") from None
        try:
            yield
        finally:
            (folder / LOCK_FILE).unlink()
            with suppress(OSError):  # not empty: a search has begun
                folder.rmdir()
