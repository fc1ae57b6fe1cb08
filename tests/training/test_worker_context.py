"""A run that is cut off and begun again from its store ends as if nothing had happened, whatever befell the store."""

import math
import resource

import numpy as np
import pytest
import torch
from workloads import Blobs, Diverging

from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.events import Finished, Message, Started
from vrgd_ray.training.loop import TrainingRun
from vrgd_ray.training.result import Progress
from vrgd_ray.training.worker_context import CheckpointInterval, WorkerContext

RECIPE = Blobs.reference.with_values(optimizer="vr_adamw", epochs=3)  # 30 steps of 8 groups
EVERY_STEP = CheckpointInterval(samples=1)


class CutOffError(Exception):
    """Stands for the end of a process."""


class Fragile(Blobs):
    """Breaks in the given pass."""

    def __init__(self, at_pass=10**9):
        super().__init__(dtype="float64", dropout=0.2)
        self.at_pass, self.passes = at_pass, 0

    def loss(self, model, batch):
        self.passes += 1
        if self.passes == self.at_pass:
            raise CutOffError
        return super().loss(model, batch)


class Work:
    """One start of a run in a folder."""

    def __init__(self, folder, at_pass=10**9, interval=EVERY_STEP, recipe=RECIPE, pipeline=None):
        self.events = []
        self.store = CheckpointStore(str(folder))
        self.context = WorkerContext(
            store=self.store, emit=self.events.append, interval=interval, device=torch.device("cpu")
        )
        self.started_at, self.run = None, None
        try:
            self.run = TrainingRun(pipeline or Fragile(at_pass), recipe, self.context)
            self.started_at = self.run.step
            self.context.begin(self.run)
            self.context.finish(self.run.run("test"), self.run.state_dict)
        except CutOffError:
            self.context._writer.finish()  # what a process that lives a little longer would have written

    def said(self):
        return [event.text for event in self.events if isinstance(event, Message)]

    @property
    def finished(self):
        (finished,) = [event for event in self.events if isinstance(event, Finished)]
        return finished

    @property
    def result(self):
        return self.finished.result


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return Work(tmp_path_factory.mktemp("undisturbed"))


def assert_same(work, undisturbed):
    for name, value in work.run.module.state_dict().items():
        assert torch.equal(value, undisturbed.run.module.state_dict()[name]), name
    assert work.result.metrics == undisturbed.result.metrics
    assert work.result.curve == undisturbed.result.curve
    assert work.result.samples == undisturbed.result.samples
    assert work.result.noise_scale == undisturbed.result.noise_scale


def test_a_run_that_is_cut_off_goes_on_from_its_newest_checkpoint(tmp_path, undisturbed):
    Work(tmp_path, at_pass=100)
    work = Work(tmp_path)
    assert work.started_at >= 10
    assert_same(work, undisturbed)


def test_a_run_cut_off_again_and_again_gets_there(tmp_path, undisturbed):
    starts = [Work(tmp_path, at_pass=at_pass).started_at for at_pass in (30, 17, 60, 9)]
    assert starts == sorted(starts)
    assert_same(Work(tmp_path), undisturbed)


def test_a_truncated_checkpoint_is_said_and_the_one_before_it_used(tmp_path, undisturbed):
    Work(tmp_path, at_pass=100)
    newest = max(tmp_path.glob("step_*.pt"))
    newest.write_bytes(newest.read_bytes()[:-500])
    work = Work(tmp_path)
    assert len(work.said()) == 1
    assert f"{newest.name} cannot be read" in work.said()[0]
    assert_same(work, undisturbed)


def test_a_disk_that_is_full_from_the_start_costs_the_checkpoints_and_not_the_run(tmp_path, undisturbed):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        work = Work(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert all("training goes on" in text for text in work.said())
    assert len(work.said()) > 1  # tried again
    assert work.store.steps() == []
    assert_same(work, undisturbed)
    assert not work.finished.saved
    assert undisturbed.finished.saved


def test_a_run_that_is_over_gives_its_result_again(tmp_path, undisturbed):
    Work(tmp_path)
    again = Work(tmp_path)
    assert again.started_at == 30
    assert_same(again, undisturbed)


def test_checkpoints_come_by_samples(tmp_path):
    steps = []

    class Noting(CheckpointStore):
        def save(self, step, state):
            steps.append(step)
            super().save(step, state)

    context = WorkerContext(
        store=Noting(str(tmp_path)),
        emit=lambda event: None,
        interval=CheckpointInterval(samples=240),
        device=torch.device("cpu"),
    )
    context.finish((run := TrainingRun(Blobs(), RECIPE, context)).run(), run.state_dict)
    assert set(steps) <= {10, 20, 30}  # once an epoch of ten steps
    assert steps[-1] == 30


def test_checkpoints_come_by_the_clock(tmp_path):
    work = Work(tmp_path, interval=CheckpointInterval(seconds=10_000))
    assert work.store.steps() == [30, 0]  # the first and the last
    eager = Work(tmp_path / "eager", interval=CheckpointInterval(seconds=1e-9))
    assert len(eager.store.steps()) == 2


def test_progress_and_result_are_sent_in_order(tmp_path):
    events = Work(tmp_path).events
    assert [type(event) for event in events] == [Started] + [Progress] * 10 + [Finished]
    assert [event.samples for event in events[:-1]] == [24 * step for step in range(0, 31, 3)]


def test_numbers_of_numpy_in_the_metrics_do_not_spoil_the_checkpoints(tmp_path, undisturbed):
    class Numpy(Fragile):
        def evaluate(self, model, data):
            return {name: np.float64(value) for name, value in super().evaluate(model, data).items()}

    Work(tmp_path, pipeline=Numpy(at_pass=100))
    work = Work(tmp_path, pipeline=Numpy())
    assert work.started_at > 0
    assert_same(work, undisturbed)


def test_a_run_that_diverged_leaves_no_state_of_its_end(tmp_path):
    work = Work(tmp_path, pipeline=Diverging(after_passes=80), interval=CheckpointInterval(seconds=1e9))
    assert work.result.diverged
    assert work.finished.saved
    assert work.store.steps() == [0]


class BrokenTest(Fragile):
    """Its evaluation on test data goes wrong, once training is over, as long as there is an `outcome`."""

    def __init__(self, outcome=None):
        super().__init__()
        self.outcome, self.test = outcome, super().test_data()

    def test_data(self):
        return self.test

    def evaluate(self, model, data):
        return self.outcome() if self.outcome and data is self.test else super().evaluate(model, data)


def cut_off():
    raise CutOffError


@pytest.mark.parametrize("outcome", [cut_off, lambda: {"accuracy": math.nan}], ids=["error", "no_number"])
def test_a_final_evaluation_that_fails_does_not_cost_the_training(tmp_path, undisturbed, outcome):
    Work(tmp_path, pipeline=BrokenTest(outcome), interval=CheckpointInterval(seconds=1e9))
    assert CheckpointStore(str(tmp_path)).steps() == [30, 0]
    pipeline = BrokenTest()
    work = Work(tmp_path, pipeline=pipeline)
    assert (work.started_at, pipeline.passes) == (30, 0)
    assert_same(work, undisturbed)


def test_the_state_of_the_end_is_written_once(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(CheckpointStore, "save", lambda self, step, state: steps.append(step))
    monkeypatch.setattr(CheckpointStore, "load", lambda self, step: {})
    assert Work(tmp_path, interval=CheckpointInterval(seconds=1e9)).finished.saved
    assert steps == [0, 30]


def test_a_model_with_extra_state_is_saved(tmp_path):
    class Counting(torch.nn.Linear):
        def get_extra_state(self):
            return {"version": 3}

        def set_extra_state(self, state):
            assert state == {"version": 3}

    class Extra(Fragile):
        def build_model(self):
            return Counting(4, 3, dtype=torch.float64)

    Work(tmp_path, pipeline=Extra(at_pass=100))
    assert Work(tmp_path, pipeline=Extra()).started_at > 0


def test_buffers_that_a_pass_changes_are_named(tmp_path):
    class Spectral(Fragile):
        def build_model(self):
            return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3, dtype=torch.float64))

    said = Work(tmp_path, pipeline=Spectral()).said()
    assert len(said) == 1
    assert "changes parametrizations.weight.0._u" in said[0]
    assert Work(tmp_path / "plain").said() == []
