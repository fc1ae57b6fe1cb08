"""Folds gradients into the group sums while backward still runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import Tensor

from vrgd_ray.gradients.bucket import Bucket
from vrgd_ray.gradients.group_sums import Chunk, GroupSums


class Folding:
    """Counts arriving gradients and folds each block of parameters once complete, while its gradients are in the cache.

    What backward leaves incomplete is folded after it. The first step folds everything after backward: it shows
    whether a parameter's gradient arrives in pieces (reentrant checkpointing, several backward calls); if so, all later
    steps do the same.

    on_fold: called with block and chunk after a block was folded inside backward.
    """

    def __init__(
        self, sums: GroupSums, buckets: Sequence[Bucket], on_fold: Callable[[Sequence[int], Chunk], None]
    ) -> None:
        self._sums = sums
        self._blocks = [block for bucket in buckets for block in bucket.blocks]
        self._block_of = {i: number for number, block in enumerate(self._blocks) for i in block}
        self._on_fold = on_fold
        self._chunk: Chunk | None = None
        self._in_pieces = False
        self.first_step = True
        self._clear()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, i))  # type: ignore[no-untyped-call]
            for i, parameter in enumerate(sums.parameters)
        ]

    @contextmanager
    def chunk(self, chunk: Chunk) -> Iterator[None]:
        """Wrap forward and backward of a chunk; on return it is folded and counted."""
        self._clear()
        self._chunk = chunk
        try:
            yield
        finally:
            self._chunk = None
        self._sums.fold([i for block in self._blocks for i in block if i not in self.folded], chunk)
        self._sums.end_chunk(chunk)

    def detach(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _clear(self) -> None:
        self.folded: set[int] = set()
        self._arrived: set[int] = set()
        self._missing = [len(block) for block in self._blocks]

    @property
    def _early(self) -> bool:
        return not (self.first_step or self._in_pieces)

    def _on_gradient(self, index: int, _: Tensor) -> None:
        if self._chunk is None:
            return
        if index in self._arrived:
            self._on_second_arrival(index)
            return
        self._arrived.add(index)
        block = self._block_of[index]
        self._missing[block] -= 1
        if self._missing[block] == 0 and self._early:
            self._fold(self._blocks[block], self._chunk)

    def _on_second_arrival(self, index: int) -> None:
        if index in self.folded:
            raise RuntimeError(
                "a parameter got a second gradient in one micro-batch, after its first one had been folded; call "
                "backward once per micro-batch (add the losses) and use checkpoint(..., use_reentrant=False)."
            )
        self._in_pieces = True

    def _fold(self, block: Sequence[int], chunk: Chunk) -> None:
        self._sums.fold(block, chunk)
        self.folded.update(block)
        self._on_fold(block, chunk)
