"""Names as MLflow takes them: those of metrics are the user's, and it refuses some that `evaluate` may well use."""

from __future__ import annotations

import posixpath
import re

_REFUSED = re.compile(r"[^\w.\- :/]")
_LONGEST = 250


def valid_name(name: str) -> str:
    """The name with `_` for whatever MLflow refuses: recall@10 is recall_10. One that it takes stays as it is."""
    valid = _REFUSED.sub("_", name)[:_LONGEST]
    # MLflow keeps a metric in a file of its name on some stores, and refuses what would lie elsewhere as a path.
    if posixpath.normpath(valid) != valid or valid.startswith(("/", "..")) or valid == ".":
        valid = re.sub(r"[/.]", "_", valid) or "_"
    return valid
