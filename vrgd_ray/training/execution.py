"""How a machine computes a recipe: what may change from run to run without changing what is trained."""

from __future__ import annotations

from dataclasses import dataclass

from vrgd_ray.config import require


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Limits and habits of the machine.

    Raises:
        ConfigError: max_samples_per_pass is below 1.
    """

    max_samples_per_pass: int | None = None
    """Samples of one forward and backward pass; larger groups are computed in parts. None: a whole group or, on a GPU,
    as much of it as fits."""
    deterministic: bool = False
    """Sum and reduce gradients in float64, with deterministic kernels: slower, closer between numbers of workers."""

    def __post_init__(self) -> None:
        limit = self.max_samples_per_pass
        require(limit is None or limit >= 1, f"max_samples_per_pass = {limit} must be at least 1.")
