"""Parameter groups as is customary for LARS and LAMB: biases and normalisations apart from the matrices."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split a model's trainable parameters into matrices and the rest (biases, scales and shifts of normalisations).

    The rest, every parameter with fewer than two dimensions, gets no weight decay and `trust_ratio=False`, which LARS
    and LAMB read and the other optimizers ignore. Skip this helper to treat all parameters alike.

    Args:
        model: Module whose parameters are to be trained; parameters without `requires_grad` are left out.
        weight_decay: Weight decay of the matrices.

    Returns:
        One or two groups for any torch optimizer; a kind without parameters has no group.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay, "trust_ratio": True},
        {"params": vectors, "weight_decay": 0.0, "trust_ratio": False},
    ]
    return [group for group in groups if group["params"]]
