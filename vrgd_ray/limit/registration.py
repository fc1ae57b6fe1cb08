"""The model of the recommended recipe, as files for a model registry."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import torch

from vrgd_ray.config import Recipe
from vrgd_ray.pipeline import PipelineSource
from vrgd_ray.search.study import TrialResources
from vrgd_ray.training.budget import count_steps
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.worker import WorkerGroup, train_on_workers

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
    group = WorkerGroup(
        num_workers=resources.workers,
        gpus_per_worker=resources.gpus_per_worker,
        storage=f"{storage}/model",
        name=f"{zlib.crc32(json.dumps(recipe.to_dict(), sort_keys=True).encode()):08x}",
    )
    store = CheckpointStore(group.checkpoints)
    if max(store.steps(), default=0) < count_steps(recipe, source.open().num_train_samples):
        print("Training the recommended recipe once more, for its model, which costs one trial ...", file=sys.stderr)
        result = train_on_workers(source.open, recipe, group, split="test")
        if result.diverged:
            raise RuntimeError(result.error or "the training diverged")
    folder.mkdir(exist_ok=True)
    torch.save(_final_state(store)["model"], folder / MODEL_FILE)
    return folder / MODEL_FILE


def _final_state(store: CheckpointStore) -> dict[str, Any]:
    newest = store.newest(lambda message: print(message, file=sys.stderr))
    if newest is None:
        raise RuntimeError(f"the training left no checkpoint in {store.location}")
    return newest[1]
