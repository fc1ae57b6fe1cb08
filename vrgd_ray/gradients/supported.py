"""Which models GradientMoments cannot serve, and why."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter

from vrgd_ray.config import ConfigError, require


def refuse_unsupported(model: nn.Module) -> None:
    """Raise ConfigError, with the reason, for a model whose group gradients cannot be taken."""
    _refuse_sharded(model)
    for module in model.modules():
        require(
            module is model or not isinstance(module, DistributedDataParallel),
            "a DistributedDataParallel module lies inside the model; pass that module itself to GradientMoments.",
        )
    if isinstance(model, DistributedDataParallel):
        require(
            not model.static_graph,
            "static_graph=True is not supported: its first steps delay gradients past the end of backward; "
            "wrap the model with static_graph=False.",
        )
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    require(bool(trainable), "the model has no parameter that requires a gradient.")
    for parameter in trainable:
        require(
            not isinstance(parameter, UninitializedParameter),
            "the model has lazy layers whose sizes are not known yet; run it on one batch before.",
        )
        require(not parameter.is_complex(), "complex parameters are not supported: the method defines a real variance.")


def _refuse_sharded(model: nn.Module) -> None:
    # By name, because importing the sharding packages would cost every user a noticeable start-up time.
    kinds = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    sharded = kinds & {"FullyShardedDataParallel", "FSDPModule"}
    if sharded or any(type(parameter).__name__ == "DTensor" for parameter in model.parameters()):
        raise ConfigError(
            "FSDP and DTensor parameters are not supported: gradients of a group exist only in shards that are already "
            "summed over workers; use DistributedDataParallel."
        )
