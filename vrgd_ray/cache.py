"""Folders made once and kept on this machine: what is derived from tables and read again by later runs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vrgd_ray.config import ConfigError, first_line

_CONTENTS = ".contents.json"
"""Names and sizes of the files of a folder in the cache."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, with what `make` writes into it unless it is there.

    Raises:
        ConfigError: the cache cannot be written.
    """
    folder = _cache() / name
    with _named_in_errors(folder.parent):
        if not _is_whole(folder):
            _make(folder, make)
    return folder


def _cache() -> Path:
    named = os.environ.get("VRGD_CACHE") or "~/.cache/vrgd_ray"
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(
            f"the cache {named} has no place, the home folder is not known; set VRGD_CACHE to a folder that can be "
            "written."
        ) from error


@contextmanager
def _named_in_errors(cache: Path) -> Iterator[None]:
    """Make errors of the cache's files a ConfigError; those of other files that `make` reads stay what they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL and not str(error.filename).startswith(str(cache)):
            raise
        raise _unwritable(cache, error) from error


def _unwritable(cache: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the cache {cache} cannot be written ({first_line(error)}); make room there, or set VRGD_CACHE to a folder "
        "that can."
    )


def _is_whole(folder: Path) -> bool:
    """Whether the folder is there with all the files it was made with, in full length."""
    try:
        sizes = json.loads((folder / _CONTENTS).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = _new_folder(folder.parent)
    try:
        make(unfinished)
        sizes = {str(file.relative_to(unfinished)): file.stat().st_size for file in _files(unfinished)}
        (unfinished / _CONTENTS).write_text(json.dumps(sizes))
        _settle(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _new_folder(cache: Path) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="unfinished_", dir=cache))
    except OSError as error:
        raise _unwritable(cache, error) from error


def _settle(unfinished: Path, folder: Path) -> None:
    """Give the finished folder its name, unless another process was quicker; one that lacks files gets them."""
    with suppress(OSError):  # the name is taken
        unfinished.rename(folder)
    if not _is_whole(folder):
        for file in _files(unfinished):  # one by one, since other processes may be reading, or doing the same
            target = folder / file.relative_to(unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
