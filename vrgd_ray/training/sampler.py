"""The order of samples: one endless stream of epoch permutations, a function of (seed, position) alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


class SampleStream:
    """Concatenation of one permutation of the data per epoch. Any stretch can be read without reading what precedes it.

    Every epoch holds each sample exactly once; a batch may straddle two epochs.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        self.num_samples = num_samples
        self.seed = seed
        # A batch touches few epochs; keeping two means none is drawn twice while the stream advances.
        self._permutation = lru_cache(maxsize=2)(self._draw)

    def indices(self, start: int, stop: int) -> Indices:
        """Sample numbers at stream positions start..stop - 1, shape [stop - start]."""
        pieces = []
        while start < stop:
            epoch, offset = divmod(start, self.num_samples)
            length = min(stop - start, self.num_samples - offset)
            pieces.append(self._permutation(epoch)[offset : offset + length])
            start += length
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _draw(self, epoch: int) -> Indices:
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_samples)
