"""How many samples of a group go through the model at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vrgd_ray.config import require

_HEADROOM = 0.1
_BUFFERS_PER_PARAMETER = 5  # two of the moments, up to three of the optimizer


def has_batch_statistics(module: nn.Module) -> bool:
    """Whether a sample's result depends on the others in its pass, which frozen normalisation does not cause."""
    normalisations = (part for part in module.modules() if isinstance(part, _BatchNorm))
    return any(part.training or part.running_mean is None for part in normalisations)


def refuse_split_groups(module: nn.Module, group_size: int, samples_per_pass: int) -> None:
    """Refuse to compute groups in parts where the result would depend on the parts.

    Raises:
        ConfigError: the model has batch statistics, and a group does not fit into one pass.
    """
    require(
        samples_per_pass >= group_size or not has_batch_statistics(module),
        f"a group of {group_size} samples does not fit into a pass of {samples_per_pass}, and the model has batch "
        "normalisation, whose result would then depend on the memory of the machine; use more groups (num_groups), "
        "or a model with group normalisation.",
    )


def largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """Halve the samples of a pass until it fits.

    Args:
        most: where to begin.
        fits: tries a pass of that many samples; the same answer on all workers.

    Raises:
        ConfigError: not even a single sample fits.
    """
    size = most
    while not fits(size):
        require(size > 1, "the model does not fit into memory: not even a single sample can be computed.")
        size = -(-size // 2)
    return size


def pass_fits(run_pass: Callable[[], None], module: nn.Module, device: torch.device, world_size: int) -> bool:
    """Whether a pass fits on every worker, beside what the rest of a step needs and a tenth of the memory to spare.

    Leaves parameters, gradients and buffers of the module as they were.
    """
    buffers = [buffer.clone() for buffer in module.buffers()]
    fits = _try(run_pass, module, device)
    for buffer, before in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(before)
    module.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if world_size == 1:
        return fits
    everywhere = torch.tensor(float(fits), device=device)
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
    return bool(everywhere.item())


def _try(run_pass: Callable[[], None], module: nn.Module, device: torch.device) -> bool:
    try:
        reserve = torch.empty(_reserved_bytes(module, device), dtype=torch.uint8, device=device)
        run_pass()
        del reserve
    except torch.OutOfMemoryError:
        return False
    return True


def _reserved_bytes(module: nn.Module, device: torch.device) -> int:
    needed = _BUFFERS_PER_PARAMETER * sum(parameter.numel() * 4 for parameter in module.parameters())
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return needed + int(_HEADROOM * total)
