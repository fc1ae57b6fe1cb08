"""Shared by the optimizers' tests: the three paths of a step."""

import sys
from pathlib import Path

import pytest

from vrgd_ray.optim import native

sys.path.insert(0, str(Path(__file__).parent.parent / "references"))


@pytest.fixture(params=["loop", "blocks", "native"])
def path(request, monkeypatch):
    """Keyword arguments and settings that send a step down one of the three paths."""
    monkeypatch.setattr(native, "MIN_ELEMENTS", 0 if request.param == "native" else 10**9)
    if request.param == "native" and native.library() is None:
        pytest.skip("needs a C compiler")
    return {"foreach": False if request.param == "loop" else None}
