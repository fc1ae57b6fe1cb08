"""Arguments against type hints: what is refused, in which words, and what is none of our business."""

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from vrgd_ray import ConfigError
from vrgd_ray.argument_types import check_types


class Taker:
    def __init__(
        self,
        count: int = 1,
        share: float = 0.5,
        subset: int | None = None,
        flip: bool = True,
        name: str = "",
        widths: Sequence[int] = (),
        codes: list[str] | None = None,
        old: Optional[float] = None,  # noqa: UP045
        folder: Path = Path(),
        anything=None,
    ) -> None:
        pass


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"count": 3, "share": 1, "subset": None, "flip": False, "name": "x", "widths": [1, 2], "codes": ["a"]},
        {"share": 0.25, "subset": 7, "widths": (3,), "codes": None, "old": 1},
        {"folder": "text where a path is due", "anything": object()},
        {"unknown": 1},
    ],
)
def test_what_fits_passes(arguments):
    check_types(Taker, arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 1.5}, "pipeline argument count = 1.5 must be a whole number."),
        ({"count": True}, "count = True must be a whole number"),
        ({"share": "1e-3"}, "share = '1e-3' must be a number. YAML takes it for text"),
        ({"share": True}, "share = True must be a number"),
        ({"subset": "abc"}, "subset = 'abc' must be a whole number or null"),
        ({"flip": "maybe"}, "flip = 'maybe' must be true or false"),
        ({"flip": 1}, "flip = 1 must be true or false"),
        ({"name": 3}, "name = 3 must be text"),
        ({"widths": 5}, r"widths = 5 must be a list of whole numbers, as \[a, b\]"),
        ({"widths": [1, "a"]}, "must be a list of whole numbers"),
        ({"codes": "age"}, "codes = 'age' must be a list of texts, as .* or null"),
        ({"old": "x"}, "old = 'x' must be a number or null"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(ConfigError, match=message):
        check_types(Taker, arguments)


def test_functions_and_hints_that_cannot_be_resolved():
    def factory(count: int, other: "Nowhere" = None):  # noqa: F821
        pass

    check_types(factory, {"count": "x"})

    def plain(count: int):
        pass

    with pytest.raises(ConfigError, match="whole number"):
        check_types(plain, {"count": "x"})
