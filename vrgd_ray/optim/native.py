"""The C kernels of large CPU models: compiled when the first large step needs them, and kept for later processes.

Compiling takes about 0.2 s. The result lies in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, then vrgd_ray),
under a name made of everything it depends on. Without a C compiler, or with the environment variable VRGD_NATIVE=0,
torch's operations do the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from vrgd_ray.optim.layer import Layer

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
MIN_ELEMENTS = 2**19
"""Parameters in a group below which compiling is not worth the wait."""

_NAMES = {torch.float32: "float", torch.float64: "double"}


@cache
def library(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Compile, unless that was done before, and load the kernels; None where that is impossible or unwanted."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("VRGD_NATIVE") == "0":
        return None
    command = [compiler, *FLAGS, f"-DT={_NAMES[dtype]}", str(SOURCE), "-lm"]
    try:
        with _folder() as folder:
            target = folder / f"kernels-{_key(command)}.so"
            if not (target.exists() and _ours_alone(target)):
                _compile(command, target)
            return _declare(ctypes.CDLL(str(target)))
    except (OSError, subprocess.SubprocessError):
        return None


def wanted(layers: list[Layer]) -> bool:
    """Whether the layers of a group are on the CPU, and enough to be worth the kernels."""
    on_cpu = [layer.param for layer in layers if layer.param.device.type == "cpu"]
    large = bool(on_cpu) and sum(param.numel() for param in on_cpu) >= MIN_ELEMENTS
    return large and all(map(library, {p.dtype for p in on_cpu}))


@contextmanager
def _folder() -> Iterator[Path]:
    """The cache folder or, where no such folder is writable by this user alone, one that lasts until loading."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vrgd_ray")
    try:
        folder = folder.expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable = _ours_alone(folder) and os.access(folder, os.W_OK)
    except (OSError, RuntimeError):  # the latter where a user has no home
        usable = False
    if usable:
        yield folder
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)


def _ours_alone(path: Path) -> bool:
    """Whether nobody else could have written there: what lies in the cache is going to be executed."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _key(command: list[str]) -> str:
    # Home folders are shared by machines, and -march=native compiles for one processor.
    processors = Path("/proc/cpuinfo")
    text = processors.read_text() if processors.exists() else platform.processor()
    kind = re.findall(r"^(?:model name|flags|Features)\s*:.*", text, re.MULTILINE)[:2] or [text]
    return hashlib.sha256(repr([SOURCE.read_text(), command, platform.machine(), kind]).encode()).hexdigest()[:32]


def _compile(command: list[str], target: Path) -> None:
    """Write the library; processes that do so at the same time replace each other's equal results."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder, target.name)
        subprocess.run([*command, "-o", str(fresh)], check=True, capture_output=True, timeout=60)
        fresh.chmod(0o700)
        fresh.replace(target)


def _declare(kernels: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for name, types in {
        "vrgd_ratios": [pointer, pointer],
        "vrgd_share_ratio": [pointer, number],
        "vrgd_scaled_gradient": [pointer, pointer, pointer],
        "vrgd_advance": [pointer, pointer],
        "vrgd_share_factor": [pointer, number, pointer],
        "vrgd_move": [pointer, pointer],
        "vrgd_steps": [pointer, pointer, number],
    }.items():
        kernel = getattr(kernels, name)
        kernel.argtypes, kernel.restype = types, None
    return kernels
