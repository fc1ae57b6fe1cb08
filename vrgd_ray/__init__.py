"""Variance-reduced gradient descent on Ray: the largest batch without accuracy loss, on any number of machines.

The public names load on first use, so that `--help` and argument errors need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrgd_ray.config import ConfigError, GsnrBounds, Recipe
    from vrgd_ray.data import TensorData
    from vrgd_ray.gradients import GradientMoments, NoiseScale
    from vrgd_ray.keyed import keyed_uniform
    from vrgd_ray.mapped import MappedArrays
    from vrgd_ray.parquet import ParquetTable
    from vrgd_ray.pipeline import Pipeline
    from vrgd_ray.search.space import SpaceContext, Suggester

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "GradientMoments",
    "GsnrBounds",
    "MappedArrays",
    "NoiseScale",
    "ParquetTable",
    "Pipeline",
    "Recipe",
    "SpaceContext",
    "Suggester",
    "TensorData",
    "keyed_uniform",
]

_HOME = {
    "ConfigError": "vrgd_ray.config",
    "GradientMoments": "vrgd_ray.gradients",
    "GsnrBounds": "vrgd_ray.config",
    "MappedArrays": "vrgd_ray.mapped",
    "NoiseScale": "vrgd_ray.gradients",
    "ParquetTable": "vrgd_ray.parquet",
    "Pipeline": "vrgd_ray.pipeline",
    "Recipe": "vrgd_ray.config",
    "SpaceContext": "vrgd_ray.search.space",
    "Suggester": "vrgd_ray.search.space",
    "TensorData": "vrgd_ray.data",
    "keyed_uniform": "vrgd_ray.keyed",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vrgd_ray' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
