"""The one contract a user implements: model, data, loss and metric. Loaded by name, checked before anything runs."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from vrgd_ray.argument_types import check_types
from vrgd_ray.config import ConfigError, Recipe, nearest, require

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

Batch = Any
"""Whatever the data returns and the loss understands: a tensor, or tuples, lists and dicts of tensors."""


class Data(Protocol):
    """Map-style data, indexed by an array of sample numbers: one gather for a whole batch."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: np.ndarray[Any, Any]) -> Batch: ...


class KeyedData(Data, Protocol):
    """Training data that is augmented. The loop calls `augmented` instead of indexing."""

    def augmented(self, indices: np.ndarray[Any, Any], keys: np.ndarray[Any, Any]) -> Batch:
        """The batch of these samples, changed at random by their keys alone (`vrgd_ray.keyed_uniform`).

        A key, uint64, is a function of (seed, epoch, sample): who computes the sample, and with which others, does not
        matter.
        """
        ...


@runtime_checkable
class Pipeline(Protocol):
    """A workload. `pipelines/linear_regression.py` is the shortest example and the template for your own.

    Optional members: `margin` (float, the accuracy loss you accept, in units of the metric) and
    `search_space` (an object with `suggest(trial, context)`, instead of the one in `search_spaces/`).
    """

    metric: str
    """Name of the metric the verdict is about; a key of what `evaluate` returns."""
    mode: Literal["max", "min"]
    """Whether a larger or a smaller metric is better."""
    num_train_samples: int
    """Samples in `train_data()`."""
    pairable: bool
    """True where the same seed gives the same initialisation and order of samples at every batch size."""
    reference: Recipe
    """The recipe known to work at a small batch."""

    def build_model(self) -> nn.Module:
        """Return a freshly initialised model; all randomness comes from torch's global generator.

        Parts that it puts in eval mode, as normalisation to be frozen, stay in eval mode. A model that is in eval mode
        itself, as pretrained ones often are, is put in train mode with all its parts.
        """
        ...

    def train_data(self) -> Data:
        """Data the parameters are fitted to; `KeyedData` where it is augmented."""
        ...

    def validation_data(self) -> Data:
        """Data the hyper-parameters are chosen on."""
        ...

    def test_data(self) -> Data:
        """Data the verdict is read on; tuning never sees it."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean loss over the samples of the batch, a scalar tensor."""
        ...

    def evaluate(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Metrics of the model (in eval mode, gradients off) on the data."""
        ...


@dataclass(frozen=True, kw_only=True)
class PipelineSource:
    """How another process gets the same pipeline."""

    name: str
    """Name it loads by."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments."""
    search_path: str = ""
    """Folder to import from, besides the installed packages."""

    @classmethod
    def here(cls, name: str, arguments: Mapping[str, Any]) -> PipelineSource:
        """The source of a pipeline that loads in this process, from this working directory."""
        return cls(name=name, arguments=dict(arguments), search_path=os.getcwd())

    def open(self) -> Pipeline:
        """The pipeline, loaded once per process: a reused actor keeps it and its data from trial to trial."""
        if not _opened or _opened[0][0] != self:
            if self.search_path and self.search_path not in sys.path:
                sys.path.insert(0, self.search_path)
            _opened[:] = [(self, load_pipeline(self.name, self.arguments))]
        return _opened[0][1]


_opened: list[tuple[PipelineSource, Pipeline]] = []
"""The one pipeline this process keeps; its arguments may be lists, which no cache of functools would take."""


_METHODS = ("build_model", "train_data", "validation_data", "test_data", "loss", "evaluate")
_VALUES: dict[str, tuple[type, str]] = {
    "metric": (str, "the name of the metric, a string"),
    "mode": (str, '"max" or "min"'),
    "num_train_samples": (int, "a whole number"),
    "pairable": (bool, "True or False"),
    "reference": (Recipe, "a vrgd_ray.Recipe"),
}


def load_pipeline(name: str, arguments: Mapping[str, Any] | None = None) -> Pipeline:
    """Import and construct a pipeline: "pipelines.digits" or "my_package.my_module:MyPipeline".

    Raises:
        ConfigError: the module, the class, an argument or a member of the protocol is missing or wrong.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, class_name = name.partition(":")
    factory = _find_class(_import(module_name), class_name)
    pipeline: Pipeline = _construct(factory, dict(arguments or {}))
    check_members(pipeline, name)
    return pipeline


def check_members(pipeline: Any, name: str) -> None:
    """Refuse an object that breaks the protocol, naming the member.

    Raises:
        ConfigError: a member is missing or has the wrong type.
    """
    for member in _METHODS:
        require(callable(getattr(pipeline, member, None)), f"pipeline {name} lacks the method {member}().")
    for member, (kind, meaning) in _VALUES.items():
        require(hasattr(pipeline, member), f"pipeline {name} lacks {member}: {meaning}.")
        value = getattr(pipeline, member)
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))  # True is an int to Python
        require(right, f"pipeline {name}: {member} = {value!r} must be {meaning}.")
    require(pipeline.mode in ("max", "min"), f'pipeline {name}: mode = {pipeline.mode!r} must be "max" or "min".')
    require(
        pipeline.num_train_samples > 0,
        f"pipeline {name}: num_train_samples = {pipeline.num_train_samples} must be above 0.",
    )


def available_pipelines() -> list[str]:
    """Names of the pipelines that come with the package; modules whose name begins with _ are helpers."""
    import pkgutil

    modules = pkgutil.iter_modules(import_module("pipelines").__path__)
    return [f"pipelines.{module.name}" for module in modules if not module.name.startswith("_")]


def _import(module_name: str) -> Any:
    require(
        all(part.isidentifier() for part in module_name.split(".")),
        f"{module_name!r} is no module name; write package.module or package.module:Class.",
    )
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        require(
            module_name == missing or module_name.startswith(missing + "."),
            f"pipeline module {module_name!r} needs the package {missing!r}, which is not installed.",
        )
        local = [path.stem for path in Path.cwd().glob("*.py")]
        raise ConfigError(
            f"no pipeline module {module_name!r}: {nearest(module_name, [*available_pipelines(), *local])}"
        ) from None
    except Exception as error:  # whatever the user's module raises while it is imported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"pipeline module {module_name!r} cannot be imported: {type(error).__name__}: {error} "
            f"({frame.filename}, line {frame.lineno})."
        ) from error


def _find_class(module: Any, class_name: str) -> Any:
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and hasattr(value, "build_model")
    }
    if class_name:
        found = getattr(module, class_name, None)
        require(found is not None, f"{module.__name__} has no {class_name!r}: {nearest(class_name, list(own))}")
        require(
            callable(found), f"{module.__name__}:{class_name} must be a class, or a function that returns a pipeline."
        )
        return found
    require(bool(own), f"module {module.__name__!r} defines no pipeline: no class in it has build_model().")
    require(
        len(own) == 1,
        f"module {module.__name__!r} defines several pipelines; name one, as {module.__name__}:{min(own)}.",
    )
    return next(iter(own.values()))


def _construct(factory: Any, arguments: dict[str, Any]) -> Any:
    kinds = {name: parameter.kind for name, parameter in inspect.signature(factory).parameters.items()}
    valid = [name for name, kind in kinds.items() if kind in (kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY)]
    for key in arguments:
        require(
            key in valid or inspect.Parameter.VAR_KEYWORD in kinds.values(),
            f"unknown pipeline argument {key!r}: {nearest(key, valid) if valid else 'it takes none.'}",
        )
    check_types(factory, arguments)
    try:
        return factory(**arguments)
    except (TypeError, FileNotFoundError) as error:
        raise ConfigError(f"the pipeline cannot be built: {error}") from error
