"""What the entry points share: help that teaches, errors in one sentence with exit status 2."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrgd_ray.tracking.tracker import Tracker

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def run(
    main: Callable[[argparse.Namespace], int], parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> int:
    """Parse the arguments and run `main`; a ConfigError becomes one sentence and exit status 2, a StorageError 1."""
    from vrgd_ray.config import ConfigError, StorageError

    parsed = parser.parse_args(arguments)
    try:
        return main(parsed)
    except ConfigError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except StorageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def add_wait(parser: Any) -> None:
    """The flag that says how long a cluster may take to become big enough."""
    parser.add_argument(
        "--wait",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long a cluster may take to offer what is asked for (default: %(default)g)",
    )


def comma_list(text: str) -> list[str]:
    """ "a,b,c" as a list; blanks around the items do not count."""
    return [item.strip() for item in text.split(",") if item.strip()]


def comma_integers(text: str) -> list[int]:
    """ "32,64" as whole numbers."""
    try:
        return [int(item) for item in comma_list(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers separated by commas") from None


def pipeline_arguments(settings: Sequence[str]) -> dict[str, Any]:
    """ "key=value" items as constructor arguments; values are read as YAML, so numbers and true/false work.

    Raises:
        ConfigError: an item is not key=value, or its value no YAML.
    """
    from vrgd_ray.config import require

    arguments = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        require(bool(key and equals), f"--pipeline-args {setting!r} must be key=value.")
        arguments[key] = _yaml_value(setting, key, text)
    return arguments


def _yaml_value(setting: str, key: str, text: str) -> Any:
    import yaml

    from vrgd_ray.config import ConfigError

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that there is not, as 2024-13-45
        quoted = shlex.quote(f"{key}={json.dumps(text, ensure_ascii=False)}")
        raise ConfigError(
            f"--pipeline-args {setting!r}: the value is not valid YAML; if it is meant as text, quote it: {quoted}"
        ) from error


def fixed_values(settings: Sequence[str]) -> dict[str, Any]:
    """`--set name=value` items as recipe fields.

    Raises:
        ConfigError: an item is not name=value, or gives a range or a list where one value is needed.
    """
    from vrgd_ray.config import require
    from vrgd_ray.search.space import parse_overrides

    values = {}
    for name, override in parse_overrides(settings, every_field=True).items():
        require(len(override.choices) == 1, f"--set {name} takes one value here, not a range or a list.")
        values[name] = override.choices[0]
    return values


def create_tracker(tracking_uri: str | None, experiment: str, output: Path) -> Tracker:
    """MLflow at the URI, by default in a database inside the output folder; "none" for no tracking."""
    from vrgd_ray.config import ConfigError
    from vrgd_ray.tracking.mlflow import MlflowTracker
    from vrgd_ray.tracking.null import NullTracker

    if tracking_uri is not None and tracking_uri.lower() == "none":
        return NullTracker()
    if tracking_uri is None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {output}: {error.strerror}; choose another --output.") from error
        tracking_uri = f"sqlite:///{(output / 'mlflow.db').resolve()}"
    return MlflowTracker(tracking_uri, experiment)


def command_line(command: str) -> str:
    """The command as the user could type it again."""
    return shlex.join(["python", "-m", f"vrgd_ray.{command}", *_typed_arguments()])


def resume_command(name: str, command: str = "tune") -> str:
    """The command that goes on with this run."""
    typed = [argument for argument in _without_limits(_typed_arguments()) if argument != "--resume"]
    named = any(argument == "--name" or argument.startswith("--name=") for argument in typed)
    return shlex.join(["python", "-m", f"vrgd_ray.{command}", *typed, *([] if named else ["--name", name]), "--resume"])


def _without_limits(typed: Sequence[str]) -> list[str]:
    """Without --max-hours and --max-samples, which would end the next start where they ended this one."""
    limits = ("--max-hours", "--max-samples")
    kept = [a for before, a in zip(["", *typed], typed, strict=False) if before not in limits and a not in limits]
    return [argument for argument in kept if not argument.startswith(tuple(f"{limit}=" for limit in limits))]


def _typed_arguments() -> list[str]:
    typed = sys.argv[1:]
    return typed[1:] if Path(sys.argv[0]).name.startswith("vrgd") and typed else typed
