"""Weighted sums over training steps, kept in a bounded number of consecutive blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CAPACITY = 64


class StepBlocks:
    """Sums of (weight, |G|^2, trace) over steps, in at most 64 blocks of consecutive steps.

    Without decay all steps weigh the same, and when all blocks are full they are merged in pairs: 32 to 64 blocks of
    equal length, however long the run. With decay every step multiplies the weight of the earlier ones by it; blocks
    then keep a length of an eighth of the averaging time 1/(1 - decay), and the two oldest are merged when room is
    needed.
    """

    def __init__(self, decay: float | None) -> None:
        self._decay = decay
        self._length = 1 if decay is None else max(1, round(0.125 / (1.0 - decay)))
        self._rows: NDArray[np.float64] = np.zeros((0, 3))
        self._steps_in_last = 0

    @property
    def rows(self) -> NDArray[np.float64]:
        """One row (weight, sum of |G|^2, sum of trace) a block, oldest first."""
        return self._rows

    def add(self, grad_norm_sq: float, noise_trace: float) -> None:
        """Add the estimates of one step."""
        if self._decay is not None:
            self._rows *= self._decay
        if len(self._rows) == 0 or self._steps_in_last == self._length:
            self._open_block()
        self._rows[-1] += (1.0, grad_norm_sq, noise_trace)
        self._steps_in_last += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the blocks as plain numbers and lists."""
        return {"rows": self._rows.tolist(), "length": self._length, "steps_in_last": self._steps_in_last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._rows = np.array(state["rows"], dtype=np.float64).reshape(-1, 3)
        self._length = int(state["length"])
        self._steps_in_last = int(state["steps_in_last"])

    def _open_block(self) -> None:
        if len(self._rows) == CAPACITY:
            self._make_room()
        self._rows = np.vstack([self._rows, np.zeros((1, 3))])
        self._steps_in_last = 0

    def _make_room(self) -> None:
        if self._decay is None:
            self._rows = self._rows[0::2] + self._rows[1::2]
            self._length *= 2
        else:
            self._rows = np.vstack([self._rows[:1] + self._rows[1:2], self._rows[2:]])
