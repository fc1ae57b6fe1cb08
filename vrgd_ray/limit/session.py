"""One search from start to files: ledger, tracking, the Ray Tune run, and what is written at the end."""

from __future__ import annotations

import errno
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from vrgd_ray.config import Recipe, StorageError
from vrgd_ray.limit.contest import Contest
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.folder import RunFolder
from vrgd_ray.limit.listener import Listener
from vrgd_ray.limit.outcome import build_outcome
from vrgd_ray.limit.plan import SearchPlan
from vrgd_ray.limit.record_store import write_whole
from vrgd_ray.limit.registration import write_model
from vrgd_ray.limit.termination import EXIT_TERMINATED, TerminableSource
from vrgd_ray.limit.tracking_listener import TrackingListener
from vrgd_ray.pipeline import Pipeline, PipelineSource
from vrgd_ray.search.job import Cell
from vrgd_ray.search.pruning import CellPruner
from vrgd_ray.search.study import TrialResources, run_search
from vrgd_ray.search.trial import broken_result
from vrgd_ray.tracking.tracker import Status, Tracker
from vrgd_ray.training.configuration import Configuration

_STATUS: dict[str, Status] = {
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "interrupted": "KILLED",
    "failed": "FAILED",
}


class Display(Listener, AbstractContextManager["Display"], Protocol):
    """A listener that shows progress while its context is open."""


@dataclass(frozen=True, kw_only=True)
class SearchSession:
    """Everything around the finder that is not the finder."""

    plan: SearchPlan
    """What to search."""
    pipeline: Pipeline
    """The workload, loaded in this process."""
    folder: RunFolder
    """Where results go."""
    tracker: Tracker
    """Where runs are logged."""
    resources: TrialResources
    """What each trial gets."""
    storage: str
    """Folder or pyarrow URI for Ray's files and checkpoints."""
    command: str
    """The user's command line, for the report."""
    render_report: Callable[[dict[str, Any]], str]
    """Turns the result into a page."""
    connect: Callable[[], AbstractContextManager[None]]
    """Opens Ray for the time of the search."""
    register: str | None = None
    """Name under which the recommended recipe's model is registered; None for none."""
    max_seconds: float | None = None
    """Time after which no further job is started."""
    max_samples: int | None = None
    """Training samples, over all starts of the search, that no further job may exceed."""

    def run(self, make_display: Callable[[Callable[[], Finder]], Display]) -> dict[str, Any]:
        """Search, and write `result.json`, `best.yaml` and `report.html` whatever ends it.

        Returns:
            The result, as in `result.json`.

        Raises:
            ConfigError: the folder holds another search, or the tracking server cannot be reached.
            StorageError: the disk is full, or the storage cannot be written to.
        """
        started = time.monotonic()
        ledger = self.folder.ledger
        self.tracker.check()
        # Whatever can be refused is refused before the first line is written.
        with self.folder.claim(), self.connect():
            recorded = ledger.read(self.plan.to_dict())
            self.tracker.start(name=self.folder.path.name, search_id=ledger.search_id, params=self._params())
            continuation = self.folder.begin(self.plan)
            display = make_display(lambda: finder)
            listeners: list[Listener] = [
                ledger,
                TrackingListener(self.tracker, lambda *what: _contest(finder, *what)),
                display,
            ]
            finder = Finder(
                self.plan, self.pipeline, listeners, recorded, self.max_seconds, self.max_samples, continuation
            )
            jobs = TerminableSource(finder, lambda: self._end_at_once(finder, display, started))
            try:
                self._search(jobs, display)
            finally:
                result = self._write(finder, time.monotonic() - started)
            if self.register is not None and result["recommended"] and result["status"] in ("finished", "stopped"):
                print(self._registered(self.register, Recipe.from_dict(result["recommended"]["recipe"])))
        return result

    def _registered(self, name: str, recipe: Recipe) -> str:
        """Register the recipe's model; a line that says so, or why not: the search's answer stands either way."""
        source = PipelineSource.here(self.plan.pipeline, self.plan.pipeline_args)
        try:
            model = write_model(source, recipe, self.resources, storage=self.storage, folder=self.folder.path / "model")
        except Exception as error:
            return f"{name} was not registered: {broken_result(error).error}"
        return self.tracker.register_model(name, [model, self.folder.path / "best.yaml"], recipe=recipe.to_dict())

    def _search(self, jobs: TerminableSource, display: Display) -> None:
        source = PipelineSource.here(self.plan.pipeline, self.plan.pipeline_args)
        with display, suppress(KeyboardInterrupt):
            try:
                run_search(jobs, source, self.resources, storage=self.storage, pruner=self._pruner(jobs.finder))
            except OSError as error:  # Ray's own files in the storage
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise StorageError(self.storage, error) from error

    def _pruner(self, finder: Finder) -> CellPruner | None:
        if not self.plan.prune or self.resources.workers > 1:
            return None
        return CellPruner(self.pipeline.metric, self.pipeline.mode, finder.recorded.values())

    def _end_at_once(self, finder: Finder, display: Display, started: float) -> NoReturn:
        """Write what is known and leave without another word to Ray: on SIGTERM its processes may be gone already."""
        finder.stop("SIGTERM was received")
        display.__exit__(None, None, None)
        self._write(finder, time.monotonic() - started)
        os._exit(EXIT_TERMINATED)

    def _write(self, finder: Finder, seconds: float) -> dict[str, Any]:
        best = self.folder.path / "best.yaml"
        result = build_outcome(
            finder,
            name=self.folder.path.name,
            command=self.command,
            train_command=f"python -m vrgd_ray.train --config {shlex.quote(str(best))}",
            seconds=self.folder.ledger.earlier_seconds + seconds,
        )
        files: list[Path] = []
        try:
            files.extend(self._files(result))
        finally:
            metrics = {name: float(value) for name, value in result["cost"].items()}
            if result["largest"]:
                metrics["largest_batch_size"] = float(result["largest"]["batch_size"])
            self.tracker.finish(_STATUS[result["status"]], metrics=metrics, artifacts=files)
        return result

    def _files(self, result: dict[str, Any]) -> Iterator[Path]:
        yield self._save("result.json", json.dumps(result, indent=2))
        if result["recommended"]:
            yield self._save("best.yaml", self._best(result["recommended"]["recipe"]))
        else:  # one of an earlier start would pass for what this one recommends
            (self.folder.path / "best.yaml").unlink(missing_ok=True)
        yield self._save("report.html", self.render_report(result))

    def _save(self, name: str, text: str) -> Path:
        path = self.folder.path / name
        write_whole(path, text.encode())
        return path

    def _best(self, recipe: dict[str, Any]) -> str:
        configuration = Configuration(
            pipeline=self.plan.pipeline, pipeline_args=self.plan.pipeline_args, recipe=Recipe.from_dict(recipe)
        )
        return configuration.to_yaml()

    def _params(self) -> dict[str, Any]:
        plan = self.plan.to_dict()
        return {name: plan[name] for name in ("pipeline", "optimizers", "batch_sizes", "trials", "seeds", "seed")} | {
            "margin": self.plan.criterion.margin,
            "alpha": self.plan.criterion.alpha,
            "command": self.command,
        }


def _contest(finder: Finder, cell: Cell, control: bool) -> Contest | None:
    return finder.control if control else finder.runs[cell].contest
