"""Where batches and the model live."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.pipeline import Batch
from vrgd_ray.training.context import Context


def to_device(batch: Batch, context: Context) -> Batch:
    """Move the tensors in a batch of tuples, lists and dicts to the context's device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(context.device, non_blocking=True)
    if isinstance(batch, (tuple, list)):
        items = [to_device(item, context) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    if isinstance(batch, dict):
        return {key: to_device(item, context) for key, item in batch.items()}
    return batch


def distribute(module: nn.Module, context: Context) -> nn.Module:
    """The module as it is, or for several workers wrapped in DistributedDataParallel without broadcast of buffers."""
    if context.world_size == 1:
        return module
    devices = [context.device] if context.device.type == "cuda" else None
    accepted = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in accepted else "broadcast_buffers"  # torch < 2.13
    options: dict[str, Any] = {buffers: False}
    return DistributedDataParallel(module, device_ids=devices, **options)
