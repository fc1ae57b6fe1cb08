"""What the training loop needs to know of the world around it, and the plain in-process one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from vrgd_ray.training.result import Progress

StateFunction = Callable[[], dict[str, Any]]


class Context(Protocol):
    """The world around the loop: which worker this is, and where progress and checkpoints go."""

    rank: int
    """This worker's number."""
    world_size: int
    """Workers in this run; above 1 a torch process group is up."""
    device: torch.device
    """Where the model lives."""

    def initial_state(self) -> dict[str, Any] | None:
        """State to go on from, as an earlier `report` got it; None to begin at the beginning."""
        ...

    def report(self, progress: Progress, state: StateFunction) -> None:
        """Take the progress at an evaluation point; `state()` is what a checkpoint holds. Every worker calls it."""
        ...

    def checkpoint_due(self, samples: int) -> bool:
        """Asked in every step, with the samples seen when it is done: whether a checkpoint is wanted then. One worker's
        wish is enough for all."""
        ...

    def checkpoint(self, state: StateFunction) -> None:
        """Keep the state. Every worker calls it, in the same step."""
        ...

    def say(self, message: str) -> None:
        """Tell the user something that needs no answer. Called by every worker alike."""
        ...


def _ignore(progress: Progress) -> None:
    return None


@dataclass
class LocalContext:
    """One worker in this process, no checkpoints."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    on_progress: Callable[[Progress], None] = _ignore
    rank: int = 0
    world_size: int = 1

    def initial_state(self) -> dict[str, Any] | None:
        """Always a fresh start."""
        return None

    def report(self, progress: Progress, state: StateFunction) -> None:
        """Hand the progress to the callback."""
        self.on_progress(progress)

    def checkpoint_due(self, samples: int) -> bool:
        """Never."""
        return False

    def checkpoint(self, state: StateFunction) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Print it."""
        print(message, file=sys.stderr)
