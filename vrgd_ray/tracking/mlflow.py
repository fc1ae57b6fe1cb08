"""MLflow on three levels: a run for the search, below it one for every cell, below that one for every training."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vrgd_ray.config import ConfigError, first_line
from vrgd_ray.tracking.names import valid_name
from vrgd_ray.tracking.tracker import GroupRecord, RunRecord, Status

_KEY = "vrgd.key"
_SEARCH = "vrgd.search_id"
_PARENT = "mlflow.parentRunId"
_POINT = "samples"
_LEVEL = "vrgd.level"
_RECIPE = "vrgd.recipe"
_BATCH = 1000
_RETRY_SECONDS = 30.0
_REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
)
"""Codes of MLflow's errors that blame the request: no later try would do better."""


class MlflowTracker:
    """Logs through an explicit client, so that nothing depends on MLflow's global state or environment.

    What cannot be written waits in order and is tried again, at most every 30 seconds and once more at the end. An
    entry that MLflow refuses is said and left out, so that it holds nothing up; names are made valid before.
    """

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self._pending: deque[Callable[[], None]] = deque()
        self._run_ids: dict[str, str] = {}
        self._group_ids: dict[str, str] = {}
        self._open_groups: set[str] = set()
        self._half_written: dict[str, str] = {}
        self._points: set[int] | None = None
        self._found_tags: Mapping[str, str] = {}
        self._next_try, self._said = 0.0, set[str]()

    def check(self) -> None:
        """Open a connection to a server, which fails in seconds where MLflow would retry for minutes."""
        address = urlsplit(self.tracking_uri)
        if address.scheme not in ("http", "https"):
            return
        try:
            port = address.port or (443 if address.scheme == "https" else 80)
            socket.create_connection((address.hostname or "", port), timeout=5).close()
        except (OSError, ValueError) as error:
            raise ConfigError(self._unusable(error)) from error

    def start(self, *, name: str, search_id: str, params: Mapping[str, Any]) -> None:
        """Open or find the parent run."""
        # An unreachable server must answer within seconds, not after MLflow's default of minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        try:
            self._client = MlflowClient(tracking_uri=self.tracking_uri)
            self._experiment_id = self._find_experiment()
            self._open_parent(name, search_id, params)
        except (MlflowException, OSError) as error:
            raise ConfigError(self._unusable(error)) from error

    def _unusable(self, error: BaseException) -> str:
        return (
            f"the tracking server {self.tracking_uri} cannot be used: {_first_sentence(error)} "
            "Check --tracking-uri, or track nothing with --tracking-uri none."
        )

    def log_group(self, record: GroupRecord) -> None:
        """Open a group, or add to it, now or when the server is back."""
        self._do(lambda: self._log_group(record))

    def log_run(self, record: RunRecord) -> None:
        """Log a finished run, now or when the server is back; a key that is there already is left alone."""
        self._do(lambda: self._log_run(record))

    def tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        """Set tags on runs logged before."""
        self._do(lambda: self._tag_runs(keys, tags))

    def log_point(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of the parent run, now or when the server is back."""
        when = int(time.time() * 1000)
        self._do(lambda: self._log_point(samples, metrics, when))

    def tags(self) -> Mapping[str, str]:
        """Tags of the parent run as `start` found it; none for a new one."""
        return self._found_tags

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the parent run."""
        self._do(lambda: self._tag(self._parent_id, tags))

    def finish(self, status: Status, *, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Close the parent run and the groups that are still open."""
        self._next_try = 0.0
        self._do(lambda: self._finish(status, metrics, artifacts))
        if self._pending:
            print(
                f"MLflow: {len(self._pending)} entries could not be written to {self.tracking_uri}; the same command "
                "with --resume writes them.",
                file=sys.stderr,
            )

    def register_model(self, name: str, files: Sequence[Path], *, recipe: Mapping[str, Any]) -> str:
        """Register the files as a version of a model, created where there is none."""
        fingerprint = f"{zlib.crc32(json.dumps(dict(recipe), sort_keys=True).encode()):08x}"
        try:
            version = self._find_version(name, fingerprint) or self._create_version(name, files, fingerprint)
        except Exception as error:  # whatever MLflow raises, the search's answer stands
            return f"{name} could not be registered ({_first_sentence(error)}); its files are in {files[0].parent}."
        return f"Model:  {name}, version {version}, at {self.tracking_uri}"

    def how_to_open(self) -> str:
        """Command or address of the MLflow UI."""
        if self.tracking_uri.startswith("http"):
            return f"MLflow: {self.tracking_uri}/#/experiments/{self._experiment_id}"
        return f"MLflow: mlflow ui --backend-store-uri {self.tracking_uri}"

    # Everything below may raise; `_do` keeps it from the search.

    def _do(self, action: Callable[[], None]) -> None:
        self._pending.append(action)
        while self._pending and time.monotonic() >= self._next_try:
            try:
                self._pending[0]()
            except Exception as error:  # whatever MLflow raises, training goes on
                if getattr(error, "error_code", None) not in _REFUSALS:
                    self._next_try = time.monotonic() + _RETRY_SECONDS
                    self._say_once("does not answer", error, "what is missed is written when it is back")
                    return
                self._say_once("refuses an entry", error, "what it refuses is left out there")
            self._pending.popleft()

    def _say_once(self, what: str, error: Exception, remedy: str) -> None:
        text = f"MLflow at {self.tracking_uri} {what} ({_first_sentence(error)}); training goes on and {remedy}."
        self._print_once(what, text)

    def _print_once(self, kind: str, text: str) -> None:
        if kind not in self._said:
            print(text, file=sys.stderr)
        self._said.add(kind)

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values under names that MLflow takes."""
        named = {valid_name(name): value for name, value in values.items()}
        changed = next((name for name in values if name not in named), None)
        if changed is not None:
            text = f"MLflow takes no name like {changed!r}: logged as {valid_name(changed)!r}."
            self._print_once("renames", text)
        return named

    def _find_experiment(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self.experiment, artifact_location=self._artifact_location()))

    def _artifact_location(self) -> str | None:
        """Beside the database; a server decides for itself."""
        prefix = "sqlite:///"
        if not self.tracking_uri.startswith(prefix):
            return None
        return (
            (Path(self.tracking_uri.removeprefix(prefix)).parent / "mlartifacts" / self.experiment).resolve().as_uri()
        )

    def _open_parent(self, name: str, search_id: str, params: Mapping[str, Any]) -> None:
        self._search_tags = {_SEARCH: search_id}
        condition = f"tags.`{_SEARCH}` = '{search_id}' and tags.`{_LEVEL}` = 'search'"
        found = self._client.search_runs([self._experiment_id], condition, max_results=1)
        if found:
            self._parent_id, self._found_tags = found[0].info.run_id, found[0].data.tags
            self._client.update_run(self._parent_id, status="RUNNING")
            self._adopt_children(search_id)
            return
        tags = {**self._search_tags, _LEVEL: "search", "role": "parent"}
        run = self._client.create_run(self._experiment_id, run_name=name, tags=tags)
        self._parent_id = run.info.run_id
        for key, value in self._named(params).items():
            self._client.log_param(self._parent_id, key, value)

    def _adopt_children(self, search_id: str) -> None:
        """Note the runs of an earlier start; one that a kill left half written is deleted, to be written again."""
        for run in self._runs(f"tags.`{_SEARCH}` = '{search_id}' and tags.`{_LEVEL}` != 'search'"):
            key, running = run.data.tags[_KEY], run.info.status == "RUNNING"
            if run.data.tags[_LEVEL] == "cell":
                self._group_ids[key] = run.info.run_id
                self._open_groups |= {key} if running else set()
            elif running:
                self._client.delete_run(run.info.run_id)
            else:
                self._run_ids[key] = run.info.run_id

    def _runs(self, condition: str) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs([self._experiment_id], condition, max_results=1000, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _log_group(self, record: GroupRecord) -> None:
        tags = {**self._search_tags, _PARENT: self._parent_id, _KEY: record.key, _LEVEL: "cell"}
        if record.key not in self._group_ids:
            run = self._client.create_run(self._experiment_id, run_name=record.name, tags=tags)
            self._group_ids[record.key] = run.info.run_id
        run_id = self._group_ids[record.key]
        self._add_to_group(run_id, record)
        if record.status is None:
            self._client.update_run(run_id, status="RUNNING")
            self._open_groups.add(record.key)
        else:
            self._client.set_terminated(run_id, record.status)
            self._open_groups.discard(record.key)

    def _add_to_group(self, run_id: str, record: GroupRecord) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        known = self._client.get_run(run_id).data
        metrics = [
            Metric(name, value, now, record.samples)
            for name, value in self._named(record.metrics).items()
            if math.isfinite(value) and known.metrics.get(name) != value
        ]
        values = {name: str(value) for name, value in self._named(record.params).items()}
        params = [Param(name, value) for name, value in values.items() if name not in known.params]
        # MLflow's params never change; what a search that was continued knows better becomes a tag.
        better = {name: value for name, value in values.items() if known.params.get(name, value) != value}
        tags = [RunTag(name, value) for name, value in self._named({**record.tags, **better}).items()]
        self._client.log_batch(run_id, metrics, params, tags)

    def _log_run(self, record: RunRecord) -> None:
        if record.key in self._run_ids:
            return
        from mlflow.entities import Metric, Param

        end = int(time.time() * 1000)
        start = end - int(record.seconds * 1000)
        parent = self._group_ids.get(record.group or "", self._parent_id)  # also where the group was refused
        tags = {**self._search_tags, _PARENT: parent, _KEY: record.key, _LEVEL: "trial", **self._named(record.tags)}
        if record.key not in self._half_written:  # an outage in the middle must not leave a second run
            run = self._client.create_run(self._experiment_id, start, tags, record.name)
            self._half_written[record.key] = run.info.run_id
        run_id = self._half_written[record.key]
        metrics = [
            Metric(name, value, end, samples)
            for samples, values in record.series
            for name, value in self._named(values).items()
            if math.isfinite(value)
        ]
        final = self._named({f"final_{name}": value for name, value in record.metrics.items()})
        metrics += [Metric(name, value, end, record.samples) for name, value in final.items()]
        self._client.log_batch(run_id, (), [Param(k, str(v)) for k, v in self._named(record.params).items()])
        for first in range(0, len(metrics), _BATCH):
            self._client.log_batch(run_id, metrics[first : first + _BATCH])
        self._client.set_terminated(run_id, record.status, end)
        self._run_ids[record.key] = self._half_written.pop(record.key)

    def _tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        for key in keys:
            if key in self._run_ids:
                self._tag(self._run_ids[key], tags)

    def _tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        for name, value in self._named(tags).items():
            self._client.set_tag(run_id, name, value)

    def _log_point(self, samples: int, metrics: Mapping[str, float], when: int) -> None:
        from mlflow.entities import Metric

        if self._points is None:  # what an earlier start of the same run has logged
            history = self._client.get_metric_history(self._parent_id, _POINT)
            self._points = {entry.step for entry in history}
        if samples in self._points:
            return
        values = {**metrics, _POINT: float(samples)}
        named = self._named(values)
        batch = [Metric(name, value, when, samples) for name, value in named.items() if math.isfinite(value)]
        self._client.log_batch(self._parent_id, batch)
        self._points.add(samples)

    def _finish(self, status: Status, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        for name, value in self._named(metrics).items():
            self._client.log_metric(self._parent_id, name, value)
        for path in artifacts:
            self._client.log_artifact(self._parent_id, str(path))
        for key in sorted(self._open_groups):
            self._client.set_terminated(self._group_ids[key], status)
            self._open_groups.discard(key)
        self._client.set_terminated(self._parent_id, status)

    def _find_version(self, name: str, fingerprint: str) -> str | None:
        versions = self._client.search_model_versions(f"name = '{name}' and run_id = '{self._parent_id}'")
        return next((str(each.version) for each in versions if each.tags.get(_RECIPE) == fingerprint), None)

    def _create_version(self, name: str, files: Sequence[Path], fingerprint: str) -> str:
        from mlflow.exceptions import MlflowException

        folder = f"model-{fingerprint}"
        for path in files:
            self._client.log_artifact(self._parent_id, str(path), folder)
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        source = f"{self._client.get_run(self._parent_id).info.artifact_uri}/{folder}"
        version = self._client.create_model_version(name, source, self._parent_id, tags={_RECIPE: fingerprint})
        return str(version.version)


def _first_sentence(error: BaseException) -> str:
    sentence = first_line(error).partition(". ")[0]
    return (sentence if len(sentence) <= 200 else f"{sentence[:200]} ...").rstrip(".") + "."
