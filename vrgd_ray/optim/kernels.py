"""How layers are handed to the C kernels: whole steps of Adam kinds, scaled gradients for the others.

Results do not depend on the number of threads: layers are cut by their size alone, and sums over the pieces of a layer
run in the order of the pieces.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref
from functools import partial
from typing import Any

import torch

from vrgd_ray.optim.blocks import Block
from vrgd_ray.optim.gsnr import largest_ratio
from vrgd_ray.optim.layer import SCALE_AVERAGE, Group, Layer, newest_share
from vrgd_ray.optim.native import library

TASK = 2**19
"""Elements after which a list of whole layers goes to another thread."""

SPLIT = 2**20
"""Elements from which on a layer is cut into pieces."""

Run = Callable[[Callable[[Any], None], Iterable[Any]], None]


class Piece(ctypes.Structure):
    """Consecutive elements of one layer."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("mean", "variance", "average", "first", "second", "param")),
        ("size", ctypes.c_int64),
        # Set by the kernels. Sums over the piece: ratios, their number, squared weights, squared directions.
        *((name, ctypes.c_double) for name in ("ratio", "count", "weights", "length")),
        # The same for all pieces of a layer: one over the mean ratio; step per direction.
        *((name, ctypes.c_double) for name in ("per_mean", "factor")),
    ]


class Options(ctypes.Structure):
    """What all layers of one type and one step count have in common."""

    _fields_ = [
        # Ratio from which on an element is free of noise; bounds; share of the newest scale in its mean; -1 to ascend.
        *((name, ctypes.c_double) for name in ("largest", "lower", "upper", "newest", "sign")),
        # 1/(1 - beta1^t) and 1/sqrt(1 - beta2^t).
        *((name, ctypes.c_double) for name in ("beta1", "beta2", "correction1", "correction2", "eps")),
        # Weight decay inside the gradient, and beside it.
        *((name, ctypes.c_double) for name in ("coupled", "decoupled", "lr")),
        # Whether the step's length is in proportion to the layer's weights.
        ("trust", ctypes.c_int64),
    ]


class NativeScale:
    """Writes the scaled gradient of a batch of layers into the blocks' buffers."""

    def __init__(self, batch: list[Layer], bounds: tuple[float, float]) -> None:
        dtype = batch[0].param.dtype
        self.kernels = _kernels(dtype)
        self.options = Options(largest_ratio(dtype), *bounds)
        self.pieces = [Piece(*_moments(layer), size=layer.grad.numel()) for layer in batch]
        for piece in self.pieces:
            self.kernels.vrgd_ratios(byref(piece), byref(self.options))
            self.kernels.vrgd_share_ratio(byref(piece), 1)

    def write(self, block: Block) -> None:
        """Write s * mean into the block's buffer."""
        offset = block.start * block.buffer.element_size()
        for whole, view in zip(self.pieces, block.views, strict=True):
            piece = Piece(whole.mean + offset, whole.variance + offset, size=view.numel(), per_mean=whole.per_mean)
            self.kernels.vrgd_scaled_gradient(byref(piece), byref(self.options), view.data_ptr())


def adam_steps(group: Group, layers: list[Layer], *, decoupled: bool, layerwise: bool) -> None:
    """Take the step of VR-Adam, VR-AdamW (decoupled) or VR-LAMB (layerwise as well); count_step comes after it."""
    kinds: dict[tuple[torch.dtype, int], list[Layer]] = {}
    for layer in layers:
        kinds.setdefault((layer.param.dtype, layer.step), []).append(layer)
    with _threads() as run:
        for members in kinds.values():
            _Adam(group, members[0], decoupled, layerwise).step(members, run)


class _Adam:
    """The step of layers of one type and one step count."""

    def __init__(self, group: Group, layer: Layer, decoupled: bool, layerwise: bool) -> None:
        (beta1, beta2, _), decay = group["betas"], group["weight_decay"]
        self.kernels = _kernels(layer.param.dtype)
        self.options = Options(
            largest_ratio(layer.param.dtype),
            *group["gsnr_bounds"],
            newest=newest_share(group, layer),
            sign=-1.0 if group["maximize"] else 1.0,
            beta1=beta1,
            beta2=beta2,
            correction1=1.0 / (1.0 - beta1**layer.step),
            correction2=(1.0 - beta2**layer.step) ** -0.5,
            eps=group["eps"],
            coupled=0.0 if decoupled else decay,
            decoupled=decay if decoupled else 0.0,
            lr=group["lr"],
            trust=layerwise and group["trust_ratio"],
        )

    def step(self, layers: list[Layer], run: Run) -> None:
        run(self._step_whole, _tasks([layer for layer in layers if layer.param.numel() < SPLIT]))
        for layer in layers:
            if layer.param.numel() >= SPLIT:
                self._step_pieces(_pieces(layer), run)

    def _step_whole(self, pieces: ctypes.Array[Piece]) -> None:
        self.kernels.vrgd_steps(pieces, byref(self.options), len(pieces))

    def _step_pieces(self, pieces: ctypes.Array[Piece], run: Run) -> None:
        options = byref(self.options)
        run(lambda piece: self.kernels.vrgd_ratios(byref(piece), options), pieces)
        self.kernels.vrgd_share_ratio(pieces, len(pieces))
        run(lambda piece: self.kernels.vrgd_advance(byref(piece), options), pieces)
        if self.options.trust:
            self.kernels.vrgd_share_factor(pieces, len(pieces), options)
            run(lambda piece: self.kernels.vrgd_move(byref(piece), options), pieces)


@contextmanager
def _threads() -> Iterator[Run]:
    """Yield a function that calls another for all items, in as many threads as torch may use, and waits for them."""
    number = torch.get_num_threads()
    if number == 1:
        yield partial(_call_all, map)
        return
    with ThreadPoolExecutor(number) as pool:  # made anew: threads would not survive a fork between two steps
        yield partial(_call_all, pool.map)


def _call_all(mapping: Callable[..., Iterable[None]], function: Callable[[Any], None], items: Iterable[Any]) -> None:
    for _ in mapping(function, items):
        pass


def _kernels(dtype: torch.dtype) -> ctypes.CDLL:
    kernels = library(dtype)
    assert kernels is not None
    return kernels


def _moments(layer: Layer) -> tuple[int, int]:
    assert layer.variance is not None
    return layer.grad.data_ptr(), layer.variance.data_ptr()


def _row(layer: Layer) -> tuple[int, ...]:
    state = layer.state
    momenta = state[SCALE_AVERAGE].data_ptr(), state["exp_avg"].data_ptr(), state["exp_avg_sq"].data_ptr()
    return (*_moments(layer), *momenta, layer.param.data_ptr(), layer.param.numel())


def _array(rows: list[tuple[int, ...]]) -> ctypes.Array[Piece]:
    return (Piece * len(rows))(*rows)  # type: ignore[misc]  # tuples fill structures


def _tasks(layers: list[Layer]) -> Iterator[ctypes.Array[Piece]]:
    rows, size = [], 0
    for layer in layers:
        rows.append(_row(layer))
        size += rows[-1][-1]
        if size >= TASK:
            yield _array(rows)
            rows, size = [], 0
    if rows:
        yield _array(rows)


def _pieces(layer: Layer) -> ctypes.Array[Piece]:
    *pointers, size = _row(layer)
    length, width = SPLIT // 8, layer.param.element_size()
    rows = [
        (*(pointer + start * width for pointer in pointers), min(length, size - start))
        for start in range(0, size, length)
    ]
    return _array(rows)
