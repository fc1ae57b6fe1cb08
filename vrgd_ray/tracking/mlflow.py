"""MLflow: one parent run for the search, one child for every training run."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vrgd_ray.config import ConfigError
from vrgd_ray.tracking.tracker import RunRecord, Status

_KEY = "vrgd.key"
_SEARCH = "vrgd.search_id"
_PARENT = "mlflow.parentRunId"
_POINT = "samples"
_RETRY_SECONDS = 30.0


class MlflowTracker:
    """Logs through an explicit client, so that nothing depends on MLflow's global state or environment.

    What cannot be written waits in order and is tried again, at most every 30 seconds and once more at the end.
    """

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self._pending: deque[Callable[[], None]] = deque()
        self._run_ids: dict[str, str] = {}
        self._half_written: dict[str, str] = {}
        self._points: set[int] | None = None
        self._next_try, self._said = 0.0, False

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
            f"the tracking server {self.tracking_uri} cannot be used: {_first_line(error)} "
            "Check --tracking-uri, or track nothing with --tracking-uri none."
        )

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

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the parent run."""
        self._do(lambda: self._tag(self._parent_id, tags))

    def finish(self, status: Status, *, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Close the parent run."""
        self._next_try = 0.0
        self._do(lambda: self._finish(status, metrics, artifacts))
        if self._pending:
            print(f"MLflow: {len(self._pending)} entries could not be written to {self.tracking_uri}.", file=sys.stderr)

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
                self._next_try = time.monotonic() + _RETRY_SECONDS
                self._say_once(error)
            else:
                self._pending.popleft()

    def _say_once(self, error: Exception) -> None:
        if not self._said:
            print(
                f"MLflow at {self.tracking_uri} does not answer ({_first_line(error)}); training goes on and what is "
                "missed is written when it is back.",
                file=sys.stderr,
            )
        self._said = True

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
        found = self._client.search_runs([self._experiment_id], f"tags.`{_SEARCH}` = '{search_id}'", max_results=1)
        if found:
            self._parent_id = found[0].info.run_id
            self._client.update_run(self._parent_id, status="RUNNING")
            self._run_ids = self._children()
            return
        run = self._client.create_run(self._experiment_id, run_name=name, tags={_SEARCH: search_id, "role": "parent"})
        self._parent_id = run.info.run_id
        for key, value in params.items():
            self._client.log_param(self._parent_id, key, value)

    def _children(self) -> dict[str, str]:
        """Run ids by key; one that a kill left half written is deleted, to be written again."""
        found, token = {}, None
        while True:
            filter_string = f"tags.`{_PARENT}` = '{self._parent_id}'"
            page = self._client.search_runs([self._experiment_id], filter_string, max_results=1000, page_token=token)
            for run in page:
                if run.info.status == "RUNNING":
                    self._client.delete_run(run.info.run_id)
                else:
                    found[run.data.tags[_KEY]] = run.info.run_id
            token = page.token
            if not token:
                return found

    def _log_run(self, record: RunRecord) -> None:
        if record.key in self._run_ids:
            return
        from mlflow.entities import Metric, Param

        end = int(time.time() * 1000)
        start = end - int(record.seconds * 1000)
        tags = {_PARENT: self._parent_id, _KEY: record.key, **record.tags}
        if record.key not in self._half_written:  # an outage in the middle must not leave a second run
            run = self._client.create_run(self._experiment_id, start, tags, record.name)
            self._half_written[record.key] = run.info.run_id
        run_id = self._half_written[record.key]
        metrics = [
            Metric(name, value, end, samples)
            for samples, values in record.series
            for name, value in values.items()
            if math.isfinite(value)
        ]
        metrics += [Metric(f"final_{name}", value, end, 0) for name, value in record.metrics.items()]
        self._client.log_batch(run_id, metrics[:1000], [Param(k, str(v)) for k, v in record.params.items()])
        self._client.set_terminated(run_id, record.status, end)
        self._run_ids[record.key] = self._half_written.pop(record.key)

    def _tag_runs(self, keys: Sequence[str], tags: Mapping[str, str]) -> None:
        for key in keys:
            if key in self._run_ids:
                self._tag(self._run_ids[key], tags)

    def _tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_tag(run_id, name, value)

    def _log_point(self, samples: int, metrics: Mapping[str, float], when: int) -> None:
        from mlflow.entities import Metric

        if self._points is None:  # what an earlier start of the same run has logged
            history = self._client.get_metric_history(self._parent_id, _POINT)
            self._points = {entry.step for entry in history}
        if samples in self._points:
            return
        values = {**metrics, _POINT: float(samples)}
        batch = [Metric(name, value, when, samples) for name, value in values.items() if math.isfinite(value)]
        self._client.log_batch(self._parent_id, batch)
        self._points.add(samples)

    def _finish(self, status: Status, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self._parent_id, name, value)
        for path in artifacts:
            self._client.log_artifact(self._parent_id, str(path))
        self._client.set_terminated(self._parent_id, status)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    sentence = lines[0].partition(". ")[0]
    return (sentence if len(sentence) <= 200 else f"{sentence[:200]} ...").rstrip(".") + "."
