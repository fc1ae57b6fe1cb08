"""Which samples of a global batch each worker computes. Groups belong to the experiment, their split to the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from vrgd_ray.config import check_batch_groups, require


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The groups of one global batch, divided over the workers there are.

    Every worker gets a run of neighbouring groups; where they do not divide evenly the first workers get one more.

    Raises:
        ConfigError: the groups do not divide the batch, or there are more workers than groups.
    """

    batch_size: int
    """Global batch, samples."""
    num_groups: int
    """Groups the batch is cut into."""
    world_size: int = 1
    """Workers that share the batch."""
    rank: int = 0
    """This worker's number, 0..world_size - 1."""

    def __post_init__(self) -> None:
        check_batch_groups(self.batch_size, self.num_groups)
        require(
            self.world_size <= self.num_groups,
            f"{self.world_size} workers cannot share num_groups = {self.num_groups} groups: every worker needs "
            f"at least one; use at most {self.num_groups} workers or num_groups >= {self.world_size}.",
        )

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

    def positions(self, step: int, group: int) -> tuple[int, int]:
        """Half-open range of the sample stream that this group of this step covers."""
        first = step * self.batch_size + group * self.group_size
        return first, first + self.group_size
