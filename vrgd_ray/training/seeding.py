"""Seeds of the random draws inside a pass, keyed so that they do not depend on who computes it."""

from __future__ import annotations

import torch

_MASK = 2**64 - 1


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of the device.

    Not `torch.manual_seed`: where CUDA is not initialised it queues a call with its stack trace every time.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def pass_seed(seed: int, step: int, group: int) -> int:
    """Seed for the forward pass of one group of one step, 0..2**63 - 1 (dropout, augmentation in the loss)."""
    return _mix(_mix(_mix(seed) ^ step) ^ group) >> 1


def _mix(value: int) -> int:
    """The splitmix64 finalizer: neighbouring integers become unrelated ones."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
