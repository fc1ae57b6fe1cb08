"""What a trial tells Tune, and what it does where no checkpoint can be written."""

import json

import pytest
import torch
from ray import tune
from workloads import Blobs

from vrgd_ray.search.tune_context import PAYLOAD, TuneContext
from vrgd_ray.training.loop import train
from vrgd_ray.training.result import TrainingResult

CPU = torch.device("cpu")


@pytest.fixture
def reports(monkeypatch):
    """All that a trial reports."""
    seen = []
    monkeypatch.setattr(tune, "get_checkpoint", lambda: None)
    monkeypatch.setattr(tune, "report", lambda metrics, checkpoint=None: seen.append((metrics, checkpoint)))
    return seen


def test_every_evaluation_but_the_last_is_reported_with_the_result_so_far(reports):
    result = train(Blobs(), Blobs.reference, TuneContext(CPU, "accuracy"))
    assert [(metrics["tenth"], checkpoint) for metrics, checkpoint in reports] == [(t, None) for t in range(1, 10)]
    so_far = TrainingResult.from_dict(json.loads(reports[3][0][PAYLOAD]))
    assert (so_far.pruned, so_far.steps, so_far.samples) == (True, 16, 16 * 24)
    assert so_far.curve == result.curve[:4]
    assert so_far.metrics == result.curve[3].metrics
    assert 0 < so_far.seconds < result.seconds
    assert [metrics["value"] for metrics, _ in reports] == [p.metrics["accuracy"] for p in result.curve[:9]]


def test_a_trial_that_is_not_to_be_pruned_reports_nothing(reports):
    train(Blobs(), Blobs.reference, TuneContext(CPU, None))
    assert reports == []


def test_where_no_checkpoint_can_be_written_the_trial_goes_on(reports, monkeypatch, capsys):
    tries = []

    def full(metrics, checkpoint=None):
        tries.append(checkpoint)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tune, "report", full)
    result = train(Blobs(), Blobs.reference, TuneContext(CPU, None, checkpoint_every=0.0))
    assert (result.steps, result.error) == (40, None)
    assert len(tries) == 1
    assert "No space left" in capsys.readouterr().err


def test_a_pruned_trial_stops_at_its_report(reports, monkeypatch):
    """Tune ends the function inside its report, by an exit that nothing on the way may take for an error."""

    def stop(metrics, checkpoint=None):
        raise SystemExit

    monkeypatch.setattr(tune, "report", stop)
    with pytest.raises(SystemExit):
        train(Blobs(), Blobs.reference, TuneContext(CPU, "accuracy"))
