"""Results and progress survive the way through JSON."""

import json
import math

import pytest
import torch
from workloads import Blobs

from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import train
from vrgd_ray.training.result import Progress, TrainingResult

POINT = Progress(step=5, total_steps=10, samples=160, metrics={"accuracy": 0.5, "lr": 0.01})


def test_a_full_result_survives_json():
    result = TrainingResult(
        metrics={"accuracy": 0.9}, steps=10, samples=320, seconds=1.5, noise_scale=12.0, curve=[POINT, POINT]
    )
    assert TrainingResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_broken_result_survives_json():
    result = TrainingResult(metrics={}, diverged=True, error="ValueError: no")
    assert TrainingResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize("metrics", [{"loss": 1.0}, {"accuracy": math.nan}, {"accuracy": -math.inf}])
def test_a_result_without_its_metric_is_broken_and_says_so(metrics):
    checked = TrainingResult(metrics=metrics, steps=7).checked("accuracy")
    assert (checked.diverged, checked.metrics, checked.steps) == (True, {}, 7)
    assert checked.error.startswith("the run gave ")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_run_stopped_early_with_a_metric_out_of_range_has_diverged(value):
    checked = TrainingResult(metrics={"accuracy": value}, pruned=True, steps=7).checked("accuracy")
    assert (checked.diverged, checked.pruned, checked.error, checked.metrics) == (True, False, None, {})
    assert checked.steps == 7


def test_a_run_stopped_early_without_its_metric_is_broken():
    checked = TrainingResult(metrics={"loss": 1.0}, pruned=True).checked("accuracy")
    assert (checked.diverged, checked.pruned) == (True, False)
    assert checked.error.startswith("the run gave ")


def test_a_sound_or_diverged_result_is_left_as_it_is():
    for result in (TrainingResult(metrics={"accuracy": 0.0}), TrainingResult(metrics={}, diverged=True)):
        assert result.checked("accuracy") is result


def test_a_result_of_the_loop_is_plain_data():
    result = train(Blobs(), Blobs.reference, LocalContext())
    assert TrainingResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_the_local_context_starts_afresh_hands_on_progress_and_takes_no_checkpoint():
    seen = []
    context = LocalContext(on_progress=seen.append)
    assert context.initial_state() is None
    assert (context.rank, context.world_size, context.device) == (0, 1, torch.device("cpu"))
    context.report(POINT, state=lambda: 1 / 0)
    assert seen == [POINT]
    LocalContext().report(POINT, state=lambda: 1 / 0)
