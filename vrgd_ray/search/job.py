"""A job: one training run that a search asks for. Plain data that travels to workers and into the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vrgd_ray.config import Recipe
from vrgd_ray.training.result import Split

Role = Literal["search", "reference", "confirm", "control", "constant", "shuffled"]


class Cell(NamedTuple):
    """One place of the grid."""

    batch_size: int
    """Global batch, samples."""
    optimizer: str
    """Name in the optimizer registry."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training run: which cell it belongs to, what for, and with which recipe."""

    cell: Cell
    """The cell it serves."""
    role: Role
    """search: a trial on validation data; every other: a fresh seed on test data. control is the reference on other
    seeds, constant and shuffled are a VR cell whose scale knows nothing (`Recipe.gsnr_control`)."""
    index: int
    """Number of the trial or seed within its role."""
    recipe: Recipe
    """What to train."""
    edition: int = 0
    """How often the search has asked for this trial or seed before: with another recipe, or where an error broke it."""
    continuation: int = 0
    """How often the search had gone on after a verdict when it asked for this run."""

    @property
    def key(self) -> str:
        """Unique name within a search, the same when the search is resumed."""
        edition = f"/edition-{self.edition}" if self.edition else ""
        return f"{self.role}/{self.cell.optimizer}/{self.cell.batch_size}/{self.index}{edition}"

    @property
    def split(self) -> Split:
        """Data the final metric is read on: tuning never sees test data."""
        return "validation" if self.role == "search" else "test"

    def to_dict(self) -> dict[str, Any]:
        """Plain dict for JSON and for Ray."""
        values = {"cell": list(self.cell), "role": self.role, "index": self.index, "recipe": self.recipe.to_dict()}
        later = {"edition": self.edition, "continuation": self.continuation}
        return values | {name: number for name, number in later.items() if number}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Job:
        """Inverse of `to_dict`."""
        return cls(
            cell=Cell(*values["cell"]),
            role=values["role"],
            index=values["index"],
            recipe=Recipe.from_dict(values["recipe"]),
            edition=values.get("edition", 0),
            continuation=values.get("continuation", 0),
        )
