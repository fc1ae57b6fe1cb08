"""Which samples of a global batch each worker computes. Groups belong to the experiment, their split to the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from vrgd_ray.config import check_batch_groups, require


class Chunk(NamedTuple):
    """A part of a group that goes through the model in one pass."""

    first: int
    """Its first sample, counted from the start of the group."""
    size: int
    """Samples in it."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The groups of one global batch, divided over the workers there are, and each group into what fits in memory.

    Every worker gets a run of neighbouring groups; where they do not divide evenly the first workers get one more.

    Raises:
        ConfigError: the groups do not divide the batch, there are more workers than groups, or a pass holds no sample.
    """

    batch_size: int
    """Global batch, samples."""
    num_groups: int
    """Groups the batch is cut into."""
    world_size: int = 1
    """Workers that share the batch."""
    rank: int = 0
    """This worker's number, 0..world_size - 1."""
    max_samples_per_pass: int | None = None
    """Samples that fit into one forward and backward pass; None for a whole group."""

    def __post_init__(self) -> None:
        check_batch_groups(self.batch_size, self.num_groups)
        require(
            self.world_size <= self.num_groups,
            f"{self.world_size} workers cannot share num_groups = {self.num_groups} groups: every worker needs "
            f"at least one; use at most {self.num_groups} workers or num_groups >= {self.world_size}.",
        )
        limit = self.max_samples_per_pass
        require(limit is None or limit >= 1, f"max_samples_per_pass = {limit} must be at least 1.")

    @property
    def group_size(self) -> int:
        """Samples in one group."""
        return self.batch_size // self.num_groups

    @property
    def groups(self) -> range:
        """Numbers of this worker's groups."""
        share, rest = divmod(self.num_groups, self.world_size)
        first = self.rank * share + min(self.rank, rest)
        return range(first, first + share + (self.rank < rest))

    @property
    def chunks(self) -> list[Chunk]:
        """The passes of a group: as few as the limit allows, of sizes that differ by at most one."""
        passes = 1 if self.max_samples_per_pass is None else -(-self.group_size // self.max_samples_per_pass)
        edges = [-(-self.group_size * i // passes) for i in range(passes + 1)]
        return [Chunk(first, end - first) for first, end in pairwise(edges)]

    def position(self, step: int, group: int) -> int:
        """Position in the sample stream at which this group of this step begins."""
        return step * self.batch_size + group * self.group_size
