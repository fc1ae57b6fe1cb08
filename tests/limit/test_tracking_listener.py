"""MLflow mirrors the ledger: written against an empty database, a search on record is there again, whole."""

from mlflow import MlflowClient
from simulation import DIVERGED, SimulatedPipeline, plan, run, train

from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.tracking_listener import TrackingListener
from vrgd_ray.tracking.mlflow import MlflowTracker
from vrgd_ray.tracking.null import NullTracker

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


class Tags(NullTracker):
    """Keeps the tags of every run by its key."""

    def __init__(self):
        self.of = {}

    def log_run(self, record):
        self.of[record.key] = dict(record.tags)

    def tag_runs(self, keys, tags):
        for key in keys:
            self.of[key] |= tags


def test_a_verdict_is_on_the_runs_it_is_about_and_on_no_others():
    tags, changes = Tags(), {"trials": 2, "optimizers": ("adamw", "vr_adamw")}
    listener = TrackingListener(tags, lambda cell, control: finder.control if control else finder.runs[cell].contest)

    def trainer(job):
        if (job.cell.batch_size, job.role, job.index) == (64, "confirm", 0):
            return DIVERGED  # decides its cell while other seeds of it are out
        return train(job, {"adamw": 32, "vr_adamw": 256})

    finder = Finder(plan(batch_sizes=(32, 64, 128), **changes), SimulatedPipeline(), [listener])
    run(finder, trainer, concurrent=4)
    verdicts = {}
    for key, own in tags.of.items():
        verdicts.setdefault(key.rpartition("/")[0], set()).add(own.get("verdict"))
    assert verdicts["reference/adamw/32"] == verdicts["search/adamw/32"] == {None}
    assert verdicts["control/adamw/32"] == {"accept"}
    assert verdicts["search/adamw/64"] == verdicts["confirm/adamw/64"] == {"reject"}
    assert len([key for key in tags.of if key.startswith("confirm/adamw/64")]) > 1


def test_scale_controls_carry_no_verdict():
    tags = Tags()
    listener = TrackingListener(tags, lambda cell, control: finder.control if control else finder.runs[cell].contest)
    finder = Finder(plan(trials=2), SimulatedPipeline(), [listener])
    run(finder, lambda job: train(job, {"adamw": 64, "vr_adamw": 256}))
    found = {own["role"]: own.get("verdict") for own in tags.of.values()}
    assert (found["constant"], found["shuffled"]) == (None, None)


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
