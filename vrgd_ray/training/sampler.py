"""The order of samples: one endless stream of epoch permutations, a function of (seed, position) alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vrgd_ray.keyed import Array, combine, sample_keys
from vrgd_ray.training.shuffle import shuffled

_DRAWN_WHOLE = 2**18
"""Up to this many samples an epoch is drawn whole; above, in blocks of this many, so that memory stays the same."""


class SampleStream:
    """Concatenation of one permutation of the data per epoch. Any stretch can be read without reading what precedes it.

    Every epoch holds each sample exactly once; a batch may straddle two epochs. Memory does not grow with the data.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        self.num_samples = num_samples
        self.seed = seed
        # A batch touches few blocks; keeping two means none is drawn twice while the stream advances.
        self._block = lru_cache(maxsize=2)(self._draw)

    def indices(self, start: int, stop: int) -> Array:
        """Sample numbers at stream positions start..stop - 1, int64 of shape [stop - start]."""
        pieces = []
        while start < stop:
            epoch, place = divmod(start, self.num_samples)
            number, offset = divmod(place, _DRAWN_WHOLE)
            piece = self._block(epoch, number)[offset : offset + stop - start]
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def keys(self, start: int, indices: Array) -> Array:
        """Keys of the samples read from `start` on, uint64: a function of (seed, epoch, sample) alone."""
        epochs = (start + np.arange(len(indices))) // self.num_samples
        pieces = [sample_keys(self.seed, int(epoch), indices[epochs == epoch]) for epoch in np.unique(epochs)]
        return np.concatenate(pieces)

    def _draw(self, epoch: int, number: int) -> Array:
        if self.num_samples <= _DRAWN_WHOLE:
            return np.random.default_rng([self.seed, epoch]).permutation(self.num_samples)
        first = number * _DRAWN_WHOLE
        return shuffled(first, min(first + _DRAWN_WHOLE, self.num_samples), self.num_samples, combine(self.seed, epoch))
