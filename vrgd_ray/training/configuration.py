"""What `vrgd train` trains: a pipeline and a recipe, as a search writes them to best.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vrgd_ray.config import ConfigError, Recipe, first_line, require


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One training run."""

    pipeline: str
    """Name the pipeline loads by."""
    pipeline_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its constructor."""
    recipe: Recipe
    """What to train."""
    run_id: str = ""
    """Name of the run for tracking systems; given to it at its first start."""

    @classmethod
    def read(cls, path: Path) -> Configuration:
        """Read a YAML file.

        Raises:
            ConfigError: it cannot be read, or lacks the pipeline or the recipe.
        """
        try:
            content = yaml.safe_load(path.read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no text
            raise ConfigError(f"--config {path} cannot be read: {_reason(error)}.") from error
        complete = (
            isinstance(content, dict)
            and isinstance(content.get("recipe"), dict)
            and isinstance(content.get("pipeline"), str)
            and isinstance(content.get("pipeline_args") or {}, dict)
        )
        require(
            complete,
            f"--config {path} must hold pipeline (a name), recipe (fields and values) and, if any, pipeline_args "
            "(names and values), as the best.yaml of a search does.",
        )
        return cls(
            pipeline=content["pipeline"],
            pipeline_args=content.get("pipeline_args") or {},
            recipe=Recipe.from_dict(content["recipe"]),
            run_id=content.get("run_id", ""),
        )

    def to_yaml(self) -> str:
        """The text of a file that `read` takes."""
        known = {"run_id": self.run_id} if self.run_id else {}
        return yaml.safe_dump({**self._content(), **known}, sort_keys=False)

    def differences(self, before: Configuration) -> list[str]:
        """What is not as it was before, as "lr = 0.1 (it was 0.2)"."""
        own, old = ({**c._content(), **c.recipe.to_dict(), "recipe": None} for c in (self, before))
        return [f"{name} = {value} (it was {old[name]})" for name, value in own.items() if value != old[name]]

    def _content(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "pipeline_args": dict(self.pipeline_args),
            "recipe": self.recipe.to_dict(),
        }


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem}, in line {error.problem_mark.line + 1}"
    return first_line(error)
