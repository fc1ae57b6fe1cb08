"""The model of the recommended recipe, as files for a model registry."""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.study import TrialResources
from vrgd_ray.training.checkpoint import STATE_FILE, load_state
from vrgd_ray.training.worker import RESULT_FILE, WorkerGroup, train_on_workers

MODEL_FILE = "state_dict.pt"


def write_model(
    source: PipelineSource, recipe: Recipe, resources: TrialResources, *, storage: str, folder: Path
) -> Path:
    """Write the trained model's `state_dict` into the folder, for `torch.load`.

    The seeds of a search leave no model, so the recipe is trained once more, at the price of one trial, on Ray Train
    workers. A training that an earlier call has finished is not repeated.

    Raises:
        RuntimeError: the training failed.
    """
    name = f"{zlib.crc32(json.dumps(recipe.to_dict(), sort_keys=True).encode()):08x}"
    checkpoint = _last_checkpoint(f"{storage}/model/{name}")
    if checkpoint is None:
        print("Training the recommended recipe once more, for its model, which costs one trial ...", file=sys.stderr)
        group = WorkerGroup(
            num_workers=resources.workers,
            gpus_per_worker=resources.gpus_per_worker,
            storage=f"{storage}/model",
            name=name,
        )
        result = train_on_workers(source.open, recipe, group, split="test")
        if result.diverged:
            raise RuntimeError(result.error or "the training diverged")
        checkpoint = _last_checkpoint(f"{storage}/model/{name}")
    folder.mkdir(exist_ok=True)
    torch.save(_model(checkpoint), folder / MODEL_FILE)
    return folder / MODEL_FILE


def _last_checkpoint(location: str) -> tuple[Any, str] | None:
    """File system and folder of the newest checkpoint if that is of the end of the run, which holds a result."""
    files, base = fs.FileSystem.from_uri(location) if "://" in location else (fs.LocalFileSystem(), location)
    found = files.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    states = sorted(str(info.path) for info in found if info.base_name == STATE_FILE)
    results = {str(info.path).rpartition("/")[0] for info in found if info.base_name == RESULT_FILE}
    newest = states[-1].rpartition("/")[0] if states else ""
    return (files, newest) if newest in results else None


def _model(checkpoint: tuple[Any, str] | None) -> dict[str, Any]:
    if checkpoint is None:
        raise RuntimeError("the training left no final checkpoint")
    files, folder = checkpoint
    with tempfile.TemporaryDirectory() as name:
        fs.copy_files(f"{folder}/{STATE_FILE}", f"{name}/{STATE_FILE}", files, fs.LocalFileSystem())
        model: dict[str, Any] = load_state(Path(name))["model"]
    return model
