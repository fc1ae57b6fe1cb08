"""MLflow mirrors the ledger: written against an empty database, a search on record is there again, whole."""

from mlflow import MlflowClient
from simulation import SimulatedPipeline, plan, run, train

from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.tracking_listener import TrackingListener
from vrgd_ray.tracking.mlflow import MlflowTracker

CRITERION = Criterion(margin=0.1, mode="max", looks=(2, 4), paired=True)
PLAN = plan(batch_sizes=(32, 64), trials=2, seeds=2, optimizers=("adamw",), criterion=CRITERION)


def search(database, ledger):
    """The search of the ledger to its end, with MLflow beside it; return the number of jobs trained."""
    recorded = ledger.read(PLAN.to_dict())
    tracker = MlflowTracker(database, "experiment")
    tracker.start(name="mine", search_id=ledger.search_id, params={})
    ledger.begin(PLAN.to_dict())

    def contest(cell, control):
        return finder.control if control else finder.runs[cell].contest

    finder = Finder(PLAN, SimulatedPipeline(), [ledger, TrackingListener(tracker, contest)], recorded)
    run(finder, lambda job: train(job, {}))
    tracker.finish("FINISHED", metrics={}, artifacts=[])
    return len(finder.finished) - len(recorded)


def tracked(database):
    """Name -> everything but times and MLflow's own ids."""
    client = MlflowClient(tracking_uri=database)
    runs = client.search_runs([client.get_experiment_by_name("experiment").experiment_id], max_results=1000)
    names = {each.info.run_id: each.info.run_name for each in runs}
    described = [
        (
            each.info.run_name,
            each.info.status,
            names.get(each.data.tags.get("mlflow.parentRunId")),
            {name: value for name, value in each.data.tags.items() if not name.startswith("mlflow.")},
            each.data.params,
            each.data.metrics,
        )
        for each in runs
    ]
    return sorted(described, key=lambda run: run[0])


def test_a_search_on_record_is_made_again_in_an_empty_database_and_never_doubled(tmp_path):
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    trained = search(first, Ledger(tmp_path / "ledger"))
    whole = tracked(first)
    assert len(whole) == trained + 3  # the search, and the cells at 32 and 64
    assert search(second, Ledger(tmp_path / "ledger")) == 0
    assert tracked(second) == whole
    assert search(first, Ledger(tmp_path / "ledger")) == 0
    assert tracked(first) == whole

    parents = {name: parent for name, _, parent, *_ in whole}
    assert parents["mine"] is None
    assert parents["adamw 64"] == "mine"
    assert parents["adamw 64 search 1"] == parents["adamw 64 confirm 1"] == "adamw 64"
    assert parents["adamw 32 reference 0"] == parents["adamw 32 control 0"] == "adamw 32"
