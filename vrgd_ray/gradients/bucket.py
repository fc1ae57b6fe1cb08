"""Several parameters that share one collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from vrgd_ray.gradients.group_sums import sum_dtype

BUCKET_BYTES = 25 * 2**20


class Bucket:
    """Parameters of one dtype and device, laid out one after the other in a flat tensor."""

    def __init__(self, indices: Sequence[int], parameters: Sequence[nn.Parameter]) -> None:
        self.indices = list(indices)
        self.dtype = sum_dtype(parameters[0])
        self.device = parameters[0].device
        self.numel = sum(parameter.numel() for parameter in parameters)
        self._shapes = [parameter.shape for parameter in parameters]
        # The strides of the parameters (channels_last, say) are kept, so that optimizers meet matching layouts.
        self._strides = [torch.empty_like(parameter, device="meta").stride() for parameter in parameters]

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return one tensor per parameter, of its shape, sharing the memory of `flat` (numel elements)."""
        offset, views = flat.storage_offset(), []
        for shape, stride in zip(self._shapes, self._strides, strict=True):
            views.append(flat.as_strided(shape, stride, offset))
            offset += shape.numel()
        return views


def make_buckets(parameters: Sequence[nn.Parameter], bucket_bytes: int = BUCKET_BYTES) -> list[Bucket]:
    """Group the parameters in reverse order, which is about the order in which backward finishes them."""
    return [Bucket(indices, [parameters[i] for i in indices]) for indices in _partition(parameters, bucket_bytes)]


def _partition(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> Iterator[list[int]]:
    open_buckets: dict[tuple[torch.dtype, torch.device], tuple[list[int], int]] = {}
    for i in reversed(range(len(parameters))):
        key = (sum_dtype(parameters[i]), parameters[i].device)
        indices, size = open_buckets.pop(key, ([], 0))
        indices.append(i)
        size += parameters[i].numel() * key[0].itemsize
        if size >= bucket_bytes:
            yield indices
        else:
            open_buckets[key] = (indices, size)
    for indices, _ in open_buckets.values():
        yield indices
