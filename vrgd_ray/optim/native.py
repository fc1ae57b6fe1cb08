"""The scale of a large CPU model in C: two passes over memory where torch's operations need seven.

The C file is compiled when the first large step needs it (about 0.3 s) and forgotten with the process. Without a C
compiler, or with the environment variable VRGD_NATIVE=0, torch's operations do the same.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.gsnr import largest_ratio
from vrgd_ray.optim.layer import Layer

SOURCE = Path(__file__).with_name("scale_kernel.c")
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
MIN_ELEMENTS = 2**19
"""Parameters in a group below which compiling is not worth the wait."""

_NAMES = {torch.float32: "float", torch.float64: "double"}


@cache
def library() -> ctypes.CDLL | None:
    """Compile and load the kernels; None where that is impossible or unwanted."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("VRGD_NATIVE") == "0":
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            target = str(Path(folder, "scale_kernel.so"))
            subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", target], check=True, capture_output=True, timeout=60)
            return _declare(ctypes.CDLL(target))
    except (OSError, subprocess.SubprocessError):
        return None


def wanted(layers: list[Layer]) -> bool:
    """Whether the layers of a group are on the CPU, and enough to be worth the kernels."""
    size = sum(layer.param.numel() for layer in layers if layer.param.device.type == "cpu")
    return size >= MIN_ELEMENTS and library() is not None


class NativeScale:
    """Writes the scaled gradient of a batch of layers into the blocks' buffers."""

    def __init__(self, batch: list[Layer], bounds: tuple[float, float], averages: list[Tensor], share: float) -> None:
        kernels, name = library(), _NAMES[batch[0].param.dtype]
        self.total = getattr(kernels, f"{name}_ratio_total")
        self.scale = getattr(kernels, f"{name}_scaled_gradient")
        self.largest = largest_ratio(batch[0].param.dtype)
        self.bounds, self.share, self.averages = bounds, share, averages
        self.per_mean = [self._per_mean(layer) for layer in batch]

    def write(self, block: Block) -> None:
        """Write weight * mean into the block's buffer, the weight being the scale or its running mean."""
        offset = block.start * block.buffer.element_size()
        for i, (layer, view) in enumerate(zip(block.layers, block.views, strict=True)):
            assert layer.variance is not None
            self.scale(
                layer.grad.data_ptr() + offset,
                layer.variance.data_ptr() + offset,
                self.averages[i].data_ptr() + offset if self.averages else None,
                view.data_ptr(),
                view.numel(),
                self.largest,
                self.per_mean[i],
                *self.bounds,
                self.share,
            )

    def _per_mean(self, layer: Layer) -> float:
        assert layer.variance is not None
        count = ctypes.c_int64(0)
        mean, variance = layer.grad.data_ptr(), layer.variance.data_ptr()
        total = self.total(mean, variance, layer.grad.numel(), self.largest, ctypes.byref(count))
        # Without a total, 0 * infinity marks ordinary elements as neutral, as 0/0 does elsewhere.
        return max(count.value, 1) / total if total else float("inf")


def _declare(kernels: ctypes.CDLL) -> ctypes.CDLL:
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    for name in _NAMES.values():
        total = getattr(kernels, f"{name}_ratio_total")
        total.argtypes, total.restype = [pointer, pointer, size, number, pointer], number
        scale = getattr(kernels, f"{name}_scaled_gradient")
        scale.argtypes, scale.restype = [pointer] * 4 + [size] + [number] * 5, None
    return kernels
