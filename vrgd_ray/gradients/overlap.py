"""Sends the buckets of a DistributedDataParallel model to the other workers while backward still runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.gradients.group_sums import Chunk, GroupSums, Moments
from vrgd_ray.gradients.reducer import BucketReducer


class OverlappedReduction:
    """Counts arriving gradients in the last micro-batch and launches each bucket as soon as it is complete.

    DistributedDataParallel itself never reduces (every micro-batch runs inside `no_sync`), so that its rebuilt buckets,
    gradient views and unused parameters do not matter here. Buckets are launched in one fixed order on all workers;
    whatever backward has not launched follows after it. The first step launches nothing early: it shows whether a
    parameter's gradient arrives in pieces (reentrant checkpointing, several backward calls) or shares its memory with
    another, in which case the launches stay after backward. That choice need not be the same on all workers.
    """

    def __init__(self, model: DistributedDataParallel, sums: GroupSums, compress: bool) -> None:
        self._model = model
        self._sums = sums
        self.reducer = BucketReducer(sums, model.process_group, compress)
        self._bucket_of = {i: b for b, bucket in enumerate(self.reducer.buckets) for i in bucket.indices}
        self._chunk: Chunk | None = None
        self._first_step, self._in_pieces, self._early = True, False, False
        self._clear_arrivals()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, i))  # type: ignore[no-untyped-call]
            for i, parameter in enumerate(sums.parameters)
        ]

    @property
    def num_workers(self) -> int:
        """Workers that share the step."""
        return int(self._model.process_group.size())

    def begin_step(self) -> None:
        """Let the first forward of the step broadcast the buffers, as it does without `no_sync`."""
        self._model.require_forward_param_sync = True

    @contextmanager
    def micro_batch(self, chunk: Chunk, last: bool) -> Iterator[None]:
        """Wrap forward and backward of a micro-batch."""
        self._clear_arrivals()
        self._chunk = chunk
        self._early = last and not (self._first_step or self._in_pieces or self._sums.shares_storage)
        try:
            with self._model.no_sync():
                yield
        finally:
            self._chunk = None

    def remaining(self) -> list[int]:
        """Parameters that backward has not folded already."""
        buckets = self.reducer.buckets[self.reducer.num_launched :]
        return [i for bucket in buckets for i in bucket.indices]

    def finish(self) -> Moments:
        """Launch what is left, wait, and return the moments over all workers."""
        for _ in self.reducer.buckets[self.reducer.num_launched :]:
            self.reducer.launch_next(self._sums.num_groups)
        self._first_step = False
        return self.reducer.finish(self._sums.num_groups)

    def discard(self) -> None:
        """Forget the step."""
        self.reducer.clear()

    def detach(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _clear_arrivals(self) -> None:
        self._arrived: set[int] = set()
        self._missing = [len(bucket.indices) for bucket in self.reducer.buckets]

    def _on_gradient(self, index: int, _: Tensor) -> None:
        if self._chunk is None:
            return
        bucket = self._bucket_of[index]
        if index in self._arrived:
            self._on_second_arrival(bucket)
        else:
            self._arrived.add(index)
            self._missing[bucket] -= 1
        if self._early:
            self._launch_complete(self._chunk)

    def _on_second_arrival(self, bucket: int) -> None:
        if bucket < self.reducer.num_launched:
            raise RuntimeError(
                "a parameter got a second gradient in this backward after its first one was sent to the other workers; "
                "use checkpoint(..., use_reentrant=False) and one backward per micro-batch."
            )
        self._in_pieces, self._early = True, False

    def _launch_complete(self, chunk: Chunk) -> None:
        position = self.reducer.num_launched
        while position < len(self._missing) and self._missing[position] == 0:
            self._sums.fold(self.reducer.buckets[position].indices, chunk)
            self.reducer.launch_next(self._sums.num_groups + 1)  # the last micro-batch ends one more group
            position += 1
