"""Arguments from a command line or a file against the type hints of who takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from vrgd_ray.config import require, yaml_hint

_WORDS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    NoneType: ("null", "null"),
}
"""Plain types in words: one of it, and several."""


def check_types(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that are plainly of another type than the hint says; other hints than plain ones fit anything.

    Raises:
        ConfigError: naming argument, value and what it must be.
    """
    for name, hint in _hints(function).items():
        if name in arguments and not _fits(arguments[name], hint):
            value = arguments[name]
            require(False, f"pipeline argument {name} = {value!r} must be {_in_words(hint)}." + yaml_hint(value))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (NameError, TypeError):  # names that exist for a type checker alone
        return {}


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, kind) for kind in get_args(hint))
    if _is_list(hint):
        return isinstance(value, (list, tuple)) and all(_fits(item, get_args(hint)[0]) for item in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint not in _WORDS or isinstance(value, hint)


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in (Sequence, list) and len(get_args(hint)) == 1


def _in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_in_words(kind) for kind in get_args(hint))
    if _is_list(hint):
        inner = get_args(hint)[0]
        return f"a list of {_WORDS[inner][1] if inner in _WORDS else 'values'}, as [a, b]"
    return _WORDS[hint][0] if hint in _WORDS else "another value"
