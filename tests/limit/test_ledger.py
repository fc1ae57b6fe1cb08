"""The search's own record: append, read back, survive a kill in the middle of a record and a full disk."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace

import pytest
from pyarrow import fs
from simulation import plan, search, train

from vrgd_ray.config import ConfigError, StorageError
from vrgd_ray.limit import ledger as ledger_module
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.outcome import build_outcome

SMALL = {"batch_sizes": (32, 64), "optimizers": ("adamw",)}
PLAN = plan(**SMALL).to_dict()


@pytest.fixture(params=["local", "subtree", "memory"])
def open_ledger(request, tmp_path):
    """The same ledger again and again: on a disk, below a folder of a file system, and in an object store."""
    files = {
        "local": lambda: None,
        "subtree": lambda: fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()),
        "memory": lambda: fs.FileSystem.from_uri("mock:///")[0],
    }[request.param]()
    folder = str(tmp_path / "ledger") if files is None else "run/ledger"
    return lambda: Ledger(folder, files)


def records(ledger):
    store = ledger._store
    return store._files, store._paths()


def cut_short(ledger, number):
    """Leave a record as a kill, or a write that was not atomic, may leave it."""
    files, paths = records(ledger)
    with files.open_input_stream(paths[number]) as stream:
        content = stream.read()
    with files.open_output_stream(paths[number]) as stream:
        stream.write(content[:-40])


def test_what_was_written_comes_back(open_ledger):
    ledger = open_ledger()
    assert ledger.read(PLAN) == {}
    assert not ledger.begun
    ledger.begin(PLAN)
    finder = search(**SMALL, listeners=[ledger])
    assert open_ledger().begun
    assert open_ledger().read(PLAN) == finder.finished


def test_a_record_cut_short_is_dropped_and_the_ledger_goes_on(open_ledger):
    ledger = open_ledger()
    ledger.begin(PLAN)
    finder = search(**SMALL, listeners=[ledger])
    cut_short(ledger, -1)
    cut_short(ledger, 5)
    recorded = open_ledger().read(PLAN)
    assert len(recorded) == len(finder.finished) - 2
    search(**SMALL, listeners=[open_ledger()], recorded=recorded)
    assert open_ledger().read(PLAN) == finder.finished


def test_killed_before_the_plan_was_whole_begins_afresh(open_ledger):
    open_ledger().begin(PLAN)
    cut_short(open_ledger(), 0)
    assert open_ledger().read(PLAN) == {}
    open_ledger().begin(PLAN)
    assert open_ledger().saved_plan()["trials"] == 4


def test_results_without_a_plan_are_refused(open_ledger):
    ledger = open_ledger()
    ledger.begin(PLAN)
    search(**SMALL, listeners=[ledger])
    cut_short(ledger, 0)
    with pytest.raises(ConfigError, match=r"the plan in .* cannot be read"):
        open_ledger().read(PLAN)


def test_another_plan_is_refused_naming_what_differs(open_ledger):
    ledger = open_ledger()
    ledger.begin(PLAN)
    with pytest.raises(ConfigError, match=r"trials = 3 \(it was 4\)"):
        ledger.read({**PLAN, "trials": 3})


def test_a_plan_that_extends_the_saved_one_is_written_behind_it_once(open_ledger):
    larger = {**PLAN, "trials": 6}
    ledger = open_ledger()
    assert ledger.begin(PLAN) == 0
    finder = search(**SMALL, listeners=[ledger])
    assert ledger.read(larger) == finder.finished
    assert [ledger.begin(larger) for _ in range(2)] == [1, 1]
    assert open_ledger().read(larger) == finder.finished
    assert open_ledger().saved_plan()["trials"] == 6
    with pytest.raises(ConfigError, match=r"trials = 4 \(it was 6\)"):
        open_ledger().read(PLAN)


def test_a_plan_extended_before_any_seed_was_compared_costs_no_level(open_ledger):
    ledger = open_ledger()
    ledger.begin(PLAN)
    tuned_only = lambda job: pytest.fail("enough") if job.role == "confirm" else train(job, {})  # noqa: E731
    with pytest.raises(pytest.fail.Exception):
        search(tuned_only, listeners=[ledger], **SMALL)
    assert ledger.read({**PLAN, "trials": 6})
    assert ledger.begin({**PLAN, "trials": 6}) == 0


def test_search_id_stays(open_ledger):
    ledger = open_ledger()
    ledger.begin(PLAN)
    again = open_ledger()
    again.begin(PLAN)
    assert again.search_id == ledger.search_id
    assert len(records(again)[1]) == 1


def test_a_pruned_trial_is_on_record_and_not_repeated(open_ledger):
    def prune_third_trials(job):
        whole = train(job, {})
        pruned = job.role == "search" and job.index == 2
        return replace(whole, pruned=True, samples=whole.samples // 5) if pruned else whole

    ledger = open_ledger()
    ledger.begin(PLAN)
    finder = search(prune_third_trials, listeners=[ledger], **SMALL)
    recorded = open_ledger().read(PLAN)
    pruned = [job for job, result in recorded.values() if result.pruned]
    assert {(job.role, job.index) for job in pruned} == {("search", 2)}
    cost = build_outcome(finder, name="", command="", train_command="", seconds=0.0)["cost"]
    assert cost["samples"] == 8192 * (len(recorded) - len(pruned)) + 8192 // 5 * len(pruned)
    resumed = search(lambda job: pytest.fail("a trial was repeated"), recorded=recorded, **SMALL)
    assert resumed.finished == finder.finished


def test_only_one_search_at_a_time(open_ledger):
    with open_ledger().claim(), pytest.raises(ConfigError, match="choose another --name"), open_ledger().claim():
        pass
    with open_ledger().claim():
        pass


def test_the_claim_of_a_killed_process_is_taken_over_and_that_of_another_machine_is_not():
    files = fs.FileSystem.from_uri("mock:///")[0]
    files.create_dir("ledger")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def leave(host):
        with files.open_output_stream("ledger/owner.json") as stream:
            stream.write(json.dumps({"host": host, "process": ended.pid}).encode())

    leave(os.uname().nodename)
    with Ledger("ledger", files).claim():
        pass
    leave("elsewhere")
    with pytest.raises(ConfigError, match=r"on elsewhere.*delete ledger/owner.json"), Ledger("ledger", files).claim():
        pass


def test_of_two_that_claim_at_once_one_is_refused(monkeypatch):
    """The other's claim arrives between this one's look and its own claim."""
    files = fs.FileSystem.from_uri("mock:///")[0]
    ledger = Ledger("ledger", files)
    write = ledger._store._write

    def write_and_be_overtaken(name, record):
        write(name, record)
        write(name, {**record, "host": "elsewhere", "claim": "other"})

    monkeypatch.setattr(ledger._store, "_write", write_and_be_overtaken)
    with pytest.raises(ConfigError, match="on elsewhere"), ledger.claim():
        pass


def test_a_storage_that_cannot_be_used_is_refused():
    with pytest.raises(ConfigError, match=r"the storage nonsense://x cannot be used: .*--storage"):
        Ledger("nonsense://x")


def test_a_full_disk_says_so_and_leaves_every_record_whole(tmp_path):
    """A limit on the size of files is a disk that has no room for one more block."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.begin(PLAN)
    search(**SMALL, listeners=[ledger])
    before = ledger.read(PLAN)
    (job, result) = next(iter(before.values()))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"cannot write to .*ledger: File too large\. .*--resume"):
            ledger.job_finished(job, result, replayed=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Ledger(tmp_path / "ledger").read(PLAN) == before
    assert all(path.suffix == ".json" for path in (tmp_path / "ledger").iterdir())


def test_a_resume_that_changes_nothing_costs_no_level(open_ledger):
    """Whether or not the data can be read on the machine at hand, and from a version that lacks a field."""
    known, unknown = ({**PLAN, "data_fingerprint": fingerprint} for fingerprint in ("abc", None))
    older = {name: value for name, value in known.items() if name not in ("warm_start", "full_grid")}
    ledger = open_ledger()
    ledger.begin(older)
    finder = search(**SMALL, listeners=[ledger])
    job, result = next(run for key, run in finder.finished.items() if key.startswith("confirm"))
    for number, asked in enumerate([known, unknown, known, unknown], start=1):
        ledger = open_ledger()
        ledger.read(asked)
        assert ledger.begin(asked) == 0
        ledger.job_finished(replace(job, edition=number), result, replayed=False)
    assert open_ledger().saved_plan()["data_fingerprint"] == "abc"
    with pytest.raises(ConfigError, match="data_fingerprint = xyz"):
        open_ledger().read({**PLAN, "data_fingerprint": "xyz"})


def test_the_time_of_earlier_starts_is_known_up_to_their_last_run(open_ledger, monkeypatch):
    now = 0.0
    monkeypatch.setattr(ledger_module.time, "monotonic", lambda: now)
    (job, result), *_ = search(**SMALL).finished.values()
    for seconds, known in ((7.0, 0.0), (5.0, 7.0), (1.0, 12.0)):
        ledger = open_ledger()
        now += 100.0
        ledger.read(PLAN)
        ledger.begin(PLAN)
        assert ledger.earlier_seconds == known
        for part in (0.5, 0.5):
            now += part * seconds
            ledger.job_finished(job, result, replayed=False)
        assert ledger.earlier_seconds == known
