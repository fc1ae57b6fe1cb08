"""Training state on disk. Written whole or not at all, and read without running any code in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

STATE_FILE = "state.pt"


def save_state(directory: Path, state: dict[str, Any]) -> None:
    """Write the state into the directory; a reader never sees half a file."""
    temporary = directory / f"{STATE_FILE}.partial"
    torch.save(state, temporary)
    os.replace(temporary, directory / STATE_FILE)


def load_state(directory: Path) -> dict[str, Any]:
    """Read a state, tensors on the CPU. `weights_only` refuses anything but tensors and plain data."""
    state: dict[str, Any] = torch.load(directory / STATE_FILE, map_location="cpu", weights_only=True)
    return state
