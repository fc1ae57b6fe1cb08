"""Seeds of the random draws inside a pass, keyed so that they do not depend on who computes it."""

from __future__ import annotations

import torch

from vrgd_ray.keyed import combine


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of the device.

    Not `torch.manual_seed`: where CUDA is not initialised it queues a call with its stack trace every time.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def pass_seed(seed: int, step: int, group: int, first: int = 0) -> int:
    """Seed for one forward pass, 0..2**63 - 1 (dropout, draws in the loss).

    Args:
        seed: the run's.
        step: number of the step.
        group: number of the group within the step.
        first: the pass's first sample, counted from the start of the group; above 0 only where memory splits groups.
    """
    return combine(seed, step, group, first) >> 1
