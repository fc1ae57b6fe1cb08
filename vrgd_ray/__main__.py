"""`vrgd tune`, `vrgd train` and `vrgd report`."""

from __future__ import annotations

import sys
from importlib import import_module

_COMMANDS = {
    "tune": "find the largest batch without accuracy loss",
    "train": "train one configuration on any number of workers",
    "report": "rebuild the reports of searches, and compare them",
}
_MODULES = {"report": "vrgd_ray.report.__main__"}
"""Where a command lies that is not the module of its name."""


def main(arguments: list[str] | None = None) -> int:
    """Hand the rest of the command line to the named command; return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _COMMANDS:
        module = import_module(_MODULES.get(arguments[0], f"vrgd_ray.{arguments[0]}"))
        status: int = module.main(arguments[1:])
        return status
    lines = [f"  vrgd {name:<6} {what}" for name, what in _COMMANDS.items()]
    print("usage: vrgd COMMAND [options]\n\n" + "\n".join(lines) + "\n\nvrgd COMMAND --help says more.")
    return 0 if arguments and arguments[0] in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
