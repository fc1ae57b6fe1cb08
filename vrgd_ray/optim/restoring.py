"""What `load_state_dict` makes of a saved state: nothing in it may surprise a step, which works on raw memory."""

from __future__ import annotations

from collections.abc import Set
from itertools import chain

import torch
from torch import Tensor
from torch.optim.optimizer import StateDict

from vrgd_ray.config import ConfigError
from vrgd_ray.optim.checks import validate_options
from vrgd_ray.optim.layer import LOW, Group, State, elementwise

Saved = list[tuple[Tensor, State]]
"""Every parameter with the state that was saved for it."""


def with_own_options(state_dict: StateDict, own: list[Group]) -> StateDict:
    """The saved state with groups as this optimizer has them: a base optimizer's know nothing of the scale.

    Raises:
        ConfigError: a saved option is out of its range.
    """
    saved = state_dict["param_groups"]
    if len(saved) != len(own):
        return state_dict  # torch says so
    groups = [_completed(mine, group) for mine, group in zip(own, saved, strict=True)]
    for group in groups:
        validate_options(group)
    return {**state_dict, "param_groups": groups}


def saved_states(state_dict: StateDict, own: list[Group]) -> Saved:
    """Parameters and their saved states, matched by their places.

    Raises:
        ConfigError: a state is not of its parameter's shape.
    """
    places, params = (chain.from_iterable(g["params"] for g in groups) for groups in (state_dict["param_groups"], own))
    found = [(param, state_dict["state"].get(place, {})) for place, param in zip(places, params, strict=False)]
    for number, (param, state) in enumerate(found):
        for name, value in elementwise(state):
            if value.shape != param.shape:
                raise ConfigError(
                    f"the saved {name} of parameter {number} has shape {tuple(value.shape)}, the parameter itself "
                    f"{tuple(param.shape)}; give the optimizer the parameters in the order in which it was saved."
                )
    return found


def refuse_foreign(saved: Saved, names: Set[str], optimizer: str) -> None:
    """Raise ConfigError where a state holds what the optimizer does not keep, such as momenta of Adam for SGD."""
    foreign = sorted({name for _, state in saved for name, value in state.items() if value is not None} - names)
    if foreign:
        raise ConfigError(
            f"the saved state holds {', '.join(foreign)}, which {optimizer} does not keep; load it into the kind of "
            "optimizer that saved it."
        )


def fit(state: State, saved: State, param: Tensor) -> None:
    """Give what torch has loaded the type and layout that a step expects.

    torch rounds all state to the parameter's type: the float32 state of half-precision parameters is taken unrounded.
    """
    for name, value in elementwise(saved):
        if param.dtype in LOW and value.dtype == torch.float32:
            state[name] = value.to(param.device, copy=True)
        if state[name].stride() != param.stride():
            state[name] = torch.empty_like(param, dtype=state[name].dtype).copy_(state[name])


def _completed(own: Group, saved: Group) -> Group:
    """Own options where the saved group lacks them, and none of a scale that this optimizer does not have."""
    taken = {name: value for name, value in saved.items() if "gsnr_bounds" in own or not name.startswith("gsnr_")}
    if "betas" in own and "betas" in saved:
        number = len(saved["betas"])
        taken["betas"] = (*saved["betas"], *own["betas"][number:])[: len(own["betas"])]
    return {**own, **taken}
