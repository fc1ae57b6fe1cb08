"""Parameters that are handled together: folded in one go, or sent in one collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from vrgd_ray.gradients.group_sums import GroupSums

BUCKET_BYTES = 25 * 2**20
BLOCK_BYTES = 2**18


class Bucket:
    """Parameters of one dtype and device, laid out one after the other in a flat tensor.

    `blocks` are the parts that are folded as soon as their gradients are there: on a CPU few enough bytes to be still
    in its cache, on other devices the whole bucket, for few launches.
    """

    def __init__(self, indices: Sequence[int], sums: GroupSums) -> None:
        own = [sums.parameters[i] for i in indices]
        self.indices = list(indices)
        self.dtype = sums.sum_dtypes[indices[0]]
        self.device = own[0].device
        self.numel = sum(parameter.numel() for parameter in own)
        on_cpu = self.device.type == "cpu"
        self.blocks = list(_runs(self.indices, sums, BLOCK_BYTES)) if on_cpu else [self.indices]
        self._shapes = [parameter.shape for parameter in own]
        # The strides of the parameters (channels_last, say) are kept, so that optimizers meet matching layouts.
        self._strides = [torch.empty_like(parameter, device="meta").stride() for parameter in own]

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return one tensor per parameter, of its shape, sharing the memory of `flat` (numel elements)."""
        offset, views = flat.storage_offset(), []
        for shape, stride in zip(self._shapes, self._strides, strict=True):
            views.append(flat.as_strided(shape, stride, offset))
            offset += shape.numel()
        return views


def make_buckets(sums: GroupSums) -> list[Bucket]:
    """Cut the parameters into buckets of about 25 MiB, the last first: about the order in which backward ends them."""
    last_first: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for i in reversed(range(len(sums.parameters))):
        last_first.setdefault((sums.sum_dtypes[i], sums.parameters[i].device), []).append(i)
    return [Bucket(run, sums) for indices in last_first.values() for run in _runs(indices, sums, BUCKET_BYTES)]


def _runs(indices: Sequence[int], sums: GroupSums, num_bytes: int) -> Iterator[list[int]]:
    """Cut the indices into runs that end once they hold `num_bytes` of sums."""
    run: list[int] = []
    size = 0
    for i in indices:
        run.append(i)
        size += sums.parameters[i].numel() * sums.sum_dtypes[i].itemsize
        if size >= num_bytes:
            yield run
            run, size = [], 0
    if run:
        yield run
