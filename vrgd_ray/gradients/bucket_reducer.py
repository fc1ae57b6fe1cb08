"""Combines the group sums of all workers, one collective per bucket, while backward goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.gradients.bucket import Bucket, make_buckets
from vrgd_ray.gradients.group_sums import Chunk, GroupSums, Moments


class BucketReducer:
    """Sums [S ; M2 + S^2/n ; n ; use counts] over workers in the sums' dtype, bucket by bucket in one fixed order.

    var = sum(M2 + S^2/n)/k - (sum(S)/k)^2, in float32 right to 0.4 % where mean^2/var is 1e4, and to about 10 % at 1e5.
    Shifting by the last step's mean would be exact, but a resumed run would then differ in rounding. With `compress`
    the first collective carries only [S ; n ; use counts]; after backward the spread around the common mean,
    M2 + n*(S/n - mean)^2, follows in bfloat16: no term is negative, so rounding cannot make it cancel.

    bytes_sent: payload bytes this worker has handed to collectives since construction.
    """

    def __init__(self, sums: GroupSums, model: DistributedDataParallel, compress: bool) -> None:
        self._sums = sums
        self._model = model
        self._compress = compress
        self.buckets = make_buckets(sums)
        self._bucket_of = {i: number for number, bucket in enumerate(self.buckets) for i in bucket.indices}
        self.num_workers = int(model.process_group.size())
        self.bytes_sent = 0
        self.discard()

    def discard(self) -> None:
        """Forget the step and its collectives."""
        self._launched: list[tuple[Tensor, dist.Work]] = []
        self._unfolded = [len(bucket.indices) for bucket in self.buckets]

    def begin_step(self) -> None:
        """Let the first forward of the step broadcast the buffers, as it does without `no_sync`."""
        self._model.require_forward_param_sync = True

    def no_sync(self) -> AbstractContextManager[None]:
        """Keep the model from reducing gradients itself; holds for forward and backward."""
        context: AbstractContextManager[None] = self._model.no_sync()
        return context

    def on_fold(self, block: Sequence[int], chunk: Chunk) -> None:
        """Launch the next buckets if this block, folded inside backward, completes them."""
        if chunk.last:
            self._unfolded[self._bucket_of[block[0]]] -= len(block)
            while len(self._launched) < len(self.buckets) and self._unfolded[len(self._launched)] == 0:
                self._launch_next(self._sums.num_groups + 1)  # the last micro-batch ends one more group

    def _launch_next(self, num_groups: int) -> None:
        """Start the collective of the next bucket; num_groups: groups of this worker in the whole step."""
        bucket = self.buckets[len(self._launched)]
        counts = [self._sums.counts[i] for i in bucket.indices]
        parts = 1 if self._compress else 2
        flat = torch.zeros(parts * bucket.numel + 1 + len(counts), dtype=bucket.dtype, device=bucket.device)
        self._copy_used(bucket, self._sums.sums, flat[: bucket.numel])
        if not self._compress:
            self._pack_squares(bucket, counts, flat[bucket.numel : 2 * bucket.numel])
        flat[parts * bucket.numel :].copy_(torch.tensor([num_groups, *counts], dtype=bucket.dtype))
        self._launched.append((flat, self._all_reduce(flat)))

    def finish(self) -> Moments:
        """Launch what is left, wait for all collectives and return the moments over all workers."""
        size, num_groups = len(self._sums.parameters), self._sums.num_groups
        while len(self._launched) < len(self.buckets):
            self._launch_next(num_groups)
        moments = Moments([None] * size, [None] * size, num_groups)
        flats = []
        for bucket, (flat, work) in zip(self.buckets, self._launched, strict=True):
            work.wait()
            moments.num_groups = flat[-1 - len(bucket.indices)]
            flat[: bucket.numel].div_(moments.num_groups)
            flats.append(flat)
        spreads = self._compressed_spreads(flats, num_groups) if self._compress else self._plain_spreads(flats)
        for bucket, flat, spread in zip(self.buckets, flats, spreads, strict=True):
            spread.div_(moments.num_groups)
            if not self._compress:
                spread.addcmul_(flat[: bucket.numel], flat[: bucket.numel], value=-1.0).clamp_(min=0.0)
            self._assign(moments, bucket, flat, spread)
        self.discard()
        return moments

    def _all_reduce(self, flat: Tensor) -> dist.Work:
        self.bytes_sent += flat.numel() * flat.element_size()
        work: dist.Work = dist.all_reduce(flat, group=self._model.process_group, async_op=True)
        return work

    def _copy_used(self, bucket: Bucket, tensors: list[Tensor | None], flat: Tensor) -> None:
        pairs = [
            (v, t) for v, i in zip(bucket.views(flat), bucket.indices, strict=True) if (t := tensors[i]) is not None
        ]
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [tensor for _, tensor in pairs])

    def _pack_squares(self, bucket: Bucket, counts: list[int], flat: Tensor) -> None:
        """Write the sum of squares of the groups' gradients as M2 + S^2/n, and free M2."""
        self._copy_used(bucket, self._sums.spreads, flat)
        for i, count, view in zip(bucket.indices, counts, bucket.views(flat), strict=True):
            total = self._sums.sums[i]
            if total is not None:
                view.addcmul_(total, total, value=1.0 / count)
            self._sums.spreads[i] = None

    def _plain_spreads(self, flats: list[Tensor]) -> list[Tensor]:
        return [flat[bucket.numel : 2 * bucket.numel] for bucket, flat in zip(self.buckets, flats, strict=True)]

    def _compressed_spreads(self, flats: list[Tensor], num_groups: int) -> list[Tensor]:
        launched = []
        for bucket, flat in zip(self.buckets, flats, strict=True):
            spread = torch.empty(bucket.numel, dtype=torch.bfloat16, device=bucket.device)
            means = bucket.views(flat[: bucket.numel])
            for i, mean, view in zip(bucket.indices, means, bucket.views(spread), strict=True):
                view.copy_(self._sums.spread_around(i, mean, num_groups))
            launched.append((spread, self._all_reduce(spread)))
        for _, work in launched:
            work.wait()
        return [spread.to(bucket.dtype) for bucket, (spread, _) in zip(self.buckets, launched, strict=True)]

    def _assign(self, moments: Moments, bucket: Bucket, flat: Tensor, spread: Tensor) -> None:
        used = self._used_anywhere(bucket, flat)
        slots = zip(bucket.indices, bucket.views(flat[: bucket.numel]), bucket.views(spread), strict=True)
        for i, mean, variance in (slot for slot, is_used in zip(slots, used, strict=True) if is_used):
            moments.means[i], moments.variances[i] = mean, variance

    def _used_anywhere(self, bucket: Bucket, flat: Tensor) -> list[bool]:
        # What this worker used is used: the device is asked (a synchronisation) only where something is missing here.
        counts: list[float] = [self._sums.counts[i] for i in bucket.indices]
        if min(counts) == 0:
            counts = flat[-len(counts) :].tolist()
        return [count > 0 for count in counts]
