"""Moments of a single worker: nothing to send."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from vrgd_ray.gradients.bucket import make_buckets
from vrgd_ray.gradients.group_sums import Chunk, GroupSums, Moments, present


class LocalReducer:
    """Turns the sums of one worker into moments; the counterpart of `BucketReducer` without other workers."""

    num_workers = 1
    bytes_sent = 0

    def __init__(self, sums: GroupSums) -> None:
        self._sums = sums
        self.buckets = make_buckets(sums)

    def begin_step(self) -> None:
        """Nothing to prepare."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Nothing to hold back."""
        return nullcontext()

    def on_fold(self, block: Sequence[int], chunk: Chunk) -> None:
        """Nothing to send."""

    def discard(self) -> None:
        """Nothing under way."""

    def finish(self) -> Moments:
        """Return mean and variance over the groups folded so far; uses up sums and spreads."""
        sums, k = self._sums, self._sums.num_groups
        complete = [i for i, count in enumerate(sums.counts) if count == k]
        if complete:
            torch._foreach_div_(present(sums.sums, complete), k)
            torch._foreach_div_(present(sums.spreads, complete), k)
        moments = Moments(sums.sums, sums.spreads, k)
        for i, count in enumerate(sums.counts):
            total = sums.sums[i]
            if total is not None and count < k:
                mean = total / k
                moments.variances[i] = sums.spread_around(i, mean, k).div_(k)
                moments.means[i] = mean
        return moments
