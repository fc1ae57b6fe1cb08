"""A whole session with simulated training: finished, then continued under a larger plan."""

import json
import signal
from contextlib import nullcontext

import pytest
from simulation import DIVERGED, SimulatedPipeline, plan, run, train

from vrgd_ray.config import ConfigError
from vrgd_ray.limit import session as session_module
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.folder import RunFolder
from vrgd_ray.limit.ledger import Ledger
from vrgd_ray.limit.session import SearchSession
from vrgd_ray.search.study import TrialResources
from vrgd_ray.tracking.null import NullTracker

LIMITS = {"adamw": 64, "vr_adamw": 128}


class Quiet(nullcontext):
    """A display that shows nothing."""

    def job_started(self, job):
        pass

    def job_finished(self, job, result, *, replayed):
        pass

    def cell_decided(self, cell, verdict, *, control):
        pass


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs a session of the plan's changes; returns its result and the keys it trained."""
    before = signal.getsignal(signal.SIGTERM)
    trained = []

    def trainer(job):
        trained.append(job.key)
        return train(job, LIMITS)

    def start(*, resume=False, max_samples=None, trainer=trainer, **changes):
        trained.clear()
        monkeypatch.setattr(session_module, "run_search", lambda source, *_, **__: run(source, trainer))
        session = SearchSession(
            plan=plan(**changes),
            pipeline=SimulatedPipeline(),
            folder=RunFolder(tmp_path / "one", resume=resume),
            tracker=NullTracker(),
            resources=TrialResources(),
            storage=str(tmp_path),
            command="c",
            render_report=lambda result: "",
            connect=nullcontext,
            max_samples=max_samples,
        )
        result = session.run(lambda finder: Quiet())
        assert json.loads((tmp_path / "one" / "result.json").read_text()) == json.loads(json.dumps(result))
        return result, list(trained)

    yield start
    signal.signal(signal.SIGTERM, before)


def test_a_finished_search_goes_on_with_more_and_repeats_nothing(start):
    first, keys = start()
    assert (first["status"], first["continuation"], first["largest"]["batch_size"]) == ("finished", 0, 128)
    larger = {"batch_sizes": (32, 64, 128, 256, 512, 1024), "resolution": 1.25}
    second, more = start(resume=True, **larger)
    assert (second["status"], second["continuation"], second["alpha"]) == ("finished", 1, 0.025)
    assert more
    assert not set(more) & set(keys)
    third, none = start(resume=True, **larger)
    assert none == []
    assert third["cells"] == second["cells"]
    assert third["continuation"] == 1


def test_a_search_that_was_stopped_goes_on_under_the_same_plan_at_the_same_level(start):
    stopped, keys = start(max_samples=30 * 8192)
    assert (stopped["status"], len(keys)) == ("stopped", 30)
    whole, more = start(resume=True)
    assert (whole["status"], whole["continuation"], whole["alpha_total"]) == ("finished", 0, 0.05)
    assert not set(more) & set(keys)


def test_a_plan_changed_in_any_other_way_is_refused_and_leaves_the_record_alone(start, tmp_path):
    start()
    before = sorted((tmp_path / "one" / "ledger").iterdir())
    with pytest.raises(ConfigError, match="trials = 2"):
        start(resume=True, trials=2)
    assert sorted((tmp_path / "one" / "ledger").iterdir()) == before


def test_the_time_is_that_of_all_starts(start, monkeypatch):
    stopped, _ = start(max_samples=30 * 8192)
    assert 0 < stopped["cost"]["seconds"] < 1e6
    monkeypatch.setattr(Ledger, "earlier_seconds", 1e6)
    whole, _ = start(resume=True)
    assert whole["cost"]["seconds"] > 1e6


def test_what_is_no_longer_recommended_is_not_left_in_best_yaml(start, tmp_path):
    start()
    best = tmp_path / "one" / "best.yaml"
    assert best.exists()
    rule = Criterion(margin=0.01, mode="max", looks=(6, 12), paired=True)
    failed, _ = start(
        resume=True,
        seeds=6,
        criterion=rule,
        trainer=lambda job: DIVERGED if (job.role, job.index) == ("reference", 5) else train(job, LIMITS),
    )
    assert failed["recommended"] is None
    assert not best.exists()
