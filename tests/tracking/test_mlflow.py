"""MLflow on a real sqlite database: what is written, what a restart and an outage leave behind."""

import time

import pytest
from mlflow import MlflowClient

from vrgd_ray.config import ConfigError
from vrgd_ray.tracking.mlflow import MlflowTracker
from vrgd_ray.tracking.tracker import GroupRecord, RunRecord


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """One database for all tests, since making one takes seconds; each test has its own experiment."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def open_tracker(database, request):
    def opened():
        tracker = MlflowTracker(database, request.node.name)
        tracker.start(name="search", search_id="abc", params={"trials": 8})
        return tracker

    return opened


def record(index=0, **changes):
    values = {
        "key": f"search/adamw/64/{index}",
        "name": f"adamw 64 search {index}",
        "tags": {"batch_size": "64", "optimizer": "adamw", "role": "search"},
        "params": {"lr": 0.1},
        "metrics": {"accuracy": 0.9},
        "series": [(640, {"accuracy": 0.5}), (1280, {"accuracy": 0.9})],
    }
    return RunRecord(**{**values, **changes})


def cell(**changes):
    values = {"key": "cell/adamw/64", "name": "adamw 64", "tags": {"batch_size": "64", "role": "cell"}}
    return GroupRecord(**{**values, **changes})


def runs(database, experiment, condition=""):
    client = MlflowClient(tracking_uri=database)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id], condition)


def test_children_of_one_parent_with_tags_params_and_series(open_tracker, database, request):
    tracker = open_tracker()
    tracker.log_run(record())
    tracker.tag_runs(["search/adamw/64/0"], {"verdict": "accept"})
    tracker.finish("FINISHED", metrics={"largest_batch_size": 64.0}, artifacts=[])
    (child,) = runs(database, request.node.name, "tags.role = 'search'")
    (parent,) = runs(database, request.node.name, "tags.role = 'parent'")
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert (child.data.tags["verdict"], child.data.params["lr"]) == ("accept", "0.1")
    history = MlflowClient(tracking_uri=database).get_metric_history(child.info.run_id, "accuracy")
    assert [(m.step, m.value) for m in history] == [(640, 0.5), (1280, 0.9)]
    assert {parent.info.status, child.info.status} == {"FINISHED"}
    assert parent.data.metrics["largest_batch_size"] == 64.0


def test_three_levels_search_cell_and_trial(open_tracker, database, request):
    tracker = open_tracker()
    tracker.log_group(cell())
    tracker.log_run(record(group="cell/adamw/64", samples=1280))
    decided = cell(
        tags={"verdict": "accept"},
        params={"lr": 0.1},
        metrics={"difference": 0.01, "lower": float("-inf")},
        samples=1280,
        status="FINISHED",
    )
    tracker.log_group(decided)
    found = {run.data.tags["role"]: run for run in runs(database, request.node.name)}
    assert found["search"].data.tags["mlflow.parentRunId"] == found["cell"].info.run_id
    assert found["cell"].data.tags["mlflow.parentRunId"] == found["parent"].info.run_id
    assert {role: run.data.tags["vrgd.level"] for role, run in found.items()} == {
        "parent": "search",
        "cell": "cell",
        "search": "trial",
    }
    assert {role: run.info.status for role, run in found.items()} == {
        "parent": "RUNNING",
        "cell": "FINISHED",
        "search": "FINISHED",
    }
    assert (found["cell"].data.tags["verdict"], found["cell"].data.params) == ("accept", {"lr": "0.1"})
    assert found["cell"].data.metrics == {"difference": 0.01}
    history = MlflowClient(tracking_uri=database).get_metric_history(found["search"].info.run_id, "final_accuracy")
    assert [metric.step for metric in history] == [1280]


def test_cells_are_found_again_after_a_kill_and_closed_with_the_search(open_tracker, database, request):
    tracker = open_tracker()
    tracker.log_group(cell())
    tracker.log_group(cell(key="cell/adamw/128", params={"lr": 0.1}, metrics={"difference": 1.0}, status="FINISHED"))
    tracker = open_tracker()
    for _ in range(2):  # as the ledger is replayed: opened again, decided again, by now with another recipe
        tracker.log_group(cell(key="cell/adamw/128"))
    tracker.log_group(cell(key="cell/adamw/128", params={"lr": 0.2}, metrics={"difference": 1.0}, status="FINISHED"))
    tracker.finish("KILLED", metrics={}, artifacts=[])
    found = {run.data.tags.get("vrgd.key", "parent"): run for run in runs(database, request.node.name)}
    assert {key: run.info.status for key, run in found.items()} == {
        "parent": "KILLED",
        "cell/adamw/64": "KILLED",
        "cell/adamw/128": "FINISHED",
    }
    again = found["cell/adamw/128"]
    assert (again.data.params["lr"], again.data.tags["lr"]) == ("0.1", "0.2")
    history = MlflowClient(tracking_uri=database).get_metric_history(again.info.run_id, "difference")
    assert len(history) == 1


def test_a_model_is_registered_once_for_each_recipe(open_tracker, database, request, tmp_path):
    files = [tmp_path / "state_dict.pt", tmp_path / "best.yaml"]
    for file in files:
        file.write_text(file.name)
    tracker = open_tracker()
    name = f"model-{request.node.name}"
    assert "version 1" in tracker.register_model(name, files, recipe={"lr": 0.1})
    assert "version 1" in open_tracker().register_model(name, files, recipe={"lr": 0.1})
    assert "version 2" in tracker.register_model(name, files, recipe={"lr": 0.2})
    client = MlflowClient(tracking_uri=database)
    versions = client.search_model_versions(f"name = '{name}'")
    assert sorted(str(version.version) for version in versions) == ["1", "2"]
    (parent,) = runs(database, request.node.name)
    for version in versions:
        assert version.run_id == parent.info.run_id
        folder = version.source.rpartition("/")[2]
        kept = client.list_artifacts(parent.info.run_id, folder)
        assert sorted(item.path for item in kept) == [f"{folder}/best.yaml", f"{folder}/state_dict.pt"]


def test_a_model_that_cannot_be_registered_is_said_and_ends_nothing(open_tracker, monkeypatch, tmp_path):
    tracker = open_tracker()
    monkeypatch.setattr(tracker._client, "create_model_version", lambda *a, **k: 1 / 0)
    (tmp_path / "best.yaml").write_text("x")
    line = tracker.register_model("some", [tmp_path / "best.yaml"], recipe={})
    assert "could not be registered (division by zero.)" in line
    assert str(tmp_path) in line


def test_a_restart_finds_its_parent_and_repeats_no_child(open_tracker, database, request):
    open_tracker().log_run(record(0))  # and then the process was killed: the parent is left running
    tracker = open_tracker()
    tracker.log_run(record(0))
    tracker.log_run(record(1))
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    found = runs(database, request.node.name)
    assert sorted(run.data.tags.get("vrgd.key", "parent") for run in found) == [
        "parent",
        "search/adamw/64/0",
        "search/adamw/64/1",
    ]
    assert {run.info.status for run in found} == {"FINISHED"}


def test_a_child_left_half_written_is_replaced(open_tracker, database, request):
    tracker = open_tracker()
    tags = {"mlflow.parentRunId": tracker._parent_id, "vrgd.key": record().key, "vrgd.level": "trial"}
    tracker._client.create_run(tracker._experiment_id, tags={"vrgd.search_id": "abc", **tags})
    tracker = open_tracker()
    tracker.log_run(record())
    (child,) = runs(database, request.node.name, "tags.`vrgd.key` LIKE 'search%'")
    assert (child.info.status, child.data.metrics["accuracy"]) == ("FINISHED", 0.9)


def test_an_outage_is_said_once_stops_nothing_and_is_made_up_for(open_tracker, database, request, monkeypatch, capsys):
    tracker = open_tracker()

    def gone(*arguments, **options):
        raise ConnectionError("connection refused")

    with monkeypatch.context() as outage:
        outage.setattr(tracker._client, "log_batch", gone)
        for index in range(3):
            tracker.log_run(record(index))
            tracker._next_try = 0.0
    assert capsys.readouterr().err.count("does not answer") == 1
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    children = runs(database, request.node.name, "tags.role = 'search'")
    assert sorted(run.data.tags["vrgd.key"] for run in children) == [record(index).key for index in range(3)]
    assert {run.info.status for run in children} == {"FINISHED"}


def test_what_never_could_be_written_is_said_at_the_end(open_tracker, monkeypatch, capsys):
    tracker = open_tracker()
    monkeypatch.setattr(tracker, "_log_run", lambda record: 1 / 0)
    tracker.log_run(record())
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    assert "could not be written" in capsys.readouterr().err


def test_names_that_mlflow_refuses_are_logged_as_others_and_said_once(open_tracker, database, request, capsys):
    odd = {"recall@10": 0.5, "f1(macro)": 0.25, "accuracy": 0.75}
    tracker = open_tracker()
    tracker.log_group(cell(metrics=odd, params={"a+b": 1}, tags={"role": "cell", "c%d": "x"}))
    tracker.log_run(record(metrics=odd, series=[(640, odd)], params={"a+b": 1}, tags={"role": "search", "c%d": "x"}))
    tracker.log_run(record(1))
    tracker.log_point(10, odd)
    tracker.tag_runs([record(1).key], {"c%d": "y"})
    tracker.finish("FINISHED", metrics=odd, artifacts=[])
    assert capsys.readouterr().err == "MLflow takes no name like 'recall@10': logged as 'recall_10'.\n"
    found = {run.data.tags.get("vrgd.key", "parent"): run for run in runs(database, request.node.name)}
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    valid = {"recall_10": 0.5, "f1_macro_": 0.25, "accuracy": 0.75}
    first, cells, parent = (found[key].data for key in (record().key, cell().key, "parent"))
    assert first.metrics == valid | {f"final_{name}": value for name, value in valid.items()}
    assert (cells.metrics, parent.metrics) == (valid, valid | {"samples": 10.0})
    assert (first.params, cells.params) == ({"a_b": "1"}, {"a_b": "1"})
    assert (first.tags["c_d"], cells.tags["c_d"], found[record(1).key].data.tags["c_d"]) == ("x", "x", "y")


def test_an_entry_that_mlflow_refuses_is_said_and_holds_up_none_of_the_others(
    open_tracker, database, request, monkeypatch, capsys
):
    tracker = open_tracker()
    tracker.log_run(record(0))
    tracker._client.delete_run(tracker._run_ids[record(0).key])  # by a user, in the UI
    tracker.tag_runs([record(0).key], {"verdict": "accept"})
    tracker.log_run(record(1))
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    said = capsys.readouterr().err
    assert "refuses an entry" in said
    assert "does not answer" not in said
    assert "could not be written" not in said
    children = runs(database, request.node.name, "tags.role = 'search'")
    assert [(run.data.tags["vrgd.key"], run.info.status) for run in children] == [(record(1).key, "FINISHED")]


def test_runs_of_a_group_that_was_refused_are_below_the_search(open_tracker, database, request):
    tracker = open_tracker()
    tracker.log_run(record(group="cell/adamw/64"))
    (child,) = runs(database, request.node.name, "tags.role = 'search'")
    assert child.data.tags["mlflow.parentRunId"] == tracker._parent_id


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://127.0.0.1:99999", "https://"])
def test_an_unreachable_server_is_refused_within_seconds(address):
    started = time.monotonic()
    with pytest.raises(ConfigError, match=rf"{address} cannot be used.*--tracking-uri"):
        MlflowTracker(address, "none").check()
    assert time.monotonic() - started < 6


def test_a_diverged_run_is_marked_failed_and_bad_numbers_are_left_out(open_tracker, database, request):
    tracker = open_tracker()
    tracker.log_run(record(status="FAILED", metrics={}, series=[(640, {"accuracy": float("nan")})]))
    (child,) = runs(database, request.node.name, "tags.role = 'search'")
    assert child.info.status == "FAILED"
    assert "accuracy" not in child.data.metrics


def points(tracker, database, name="accuracy"):
    history = MlflowClient(tracking_uri=database).get_metric_history(tracker._parent_id, name)
    return [(point.step, point.value) for point in history]


def test_points_of_the_run_itself_are_logged_once_even_over_a_restart(open_tracker, database):
    tracker = open_tracker()
    for samples in (10, 20, 10):
        tracker.log_point(samples, {"accuracy": samples / 100, "broken": float("nan")})
    tracker = open_tracker()  # the process was killed and started again
    for samples in (10, 20, 30):
        tracker.log_point(samples, {"accuracy": samples / 100})
    tracker.tag({"restarts": "1"})
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    assert points(tracker, database) == [(10, 0.1), (20, 0.2), (30, 0.3)]
    run = MlflowClient(tracking_uri=database).get_run(tracker._parent_id)
    assert (run.data.tags["restarts"], run.info.status) == ("1", "FINISHED")
    assert "broken" not in run.data.metrics
