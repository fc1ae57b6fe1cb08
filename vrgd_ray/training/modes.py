"""Which parts of a model train, and which `build_model` froze in eval mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

_MOST_NAMED = 3


def begin_training(module: nn.Module, say: Callable[[str], None]) -> None:
    """Put the model in train mode by its own `train`, which may freeze parts; what is in eval mode already stays so.

    Those parts are named, since that may be meant or not. A model that is in eval mode itself is put in train mode
    altogether: so do pretrained ones come out of libraries.
    """
    frozen = [(part, False) for part, training in _modes(module) if module.training and not training]
    module.train()
    _restore(frozen)
    names = _frozen(module)
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        named = ", ".join(names[:_MOST_NAMED]) + more
        say(f"Parts of the model stay in eval mode: {named}.")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The whole model in eval mode, without gradients; afterwards each part is in the mode it had."""
    modes = _modes(module)
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train()
        _restore(modes)


def _modes(module: nn.Module) -> list[tuple[nn.Module, bool]]:
    return [(part, part.training) for part in module.modules()]


def _restore(modes: list[tuple[nn.Module, bool]]) -> None:
    """Give parts their modes back by their own `train`, which may do more than set the mode: layers merge there."""
    for part, training in modes:
        if part.training != training:
            part.train(training)


def _frozen(module: nn.Module) -> list[str]:
    """Names of the parts in eval mode, without the parts of those."""
    frozen = {name for name, part in module.named_modules() if not part.training}
    return [name for name, _ in module.named_modules() if name in frozen and name.rpartition(".")[0] not in frozen]
