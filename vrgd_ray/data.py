"""Map-style data that fits in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vrgd_ray.config import require


class TensorData:
    """Tensors of equal length, indexed together by an array of sample numbers."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        lengths = [len(tensor) for tensor in tensors]
        require(len(set(lengths)) == 1, f"TensorData needs tensors of one length, got lengths {lengths}.")
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, indices: np.ndarray[Any, Any]) -> tuple[torch.Tensor, ...]:
        chosen = torch.as_tensor(indices)
        return tuple(tensor[chosen] for tensor in self.tensors)
