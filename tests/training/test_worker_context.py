"""A run that is cut off and begun again from its store ends as if nothing had happened, whatever befell the store."""

import resource

import pytest
import torch
from workloads import Blobs

from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.events import Finished, Message
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

    def __init__(self, folder, at_pass=10**9, interval=EVERY_STEP, recipe=RECIPE):
        self.events = []
        self.store = CheckpointStore(str(folder))
        self.context = WorkerContext(
            store=self.store, emit=self.events.append, interval=interval, device=torch.device("cpu")
        )
        self.started_at, self.run = None, None
        try:
            self.run = TrainingRun(Fragile(at_pass), recipe, self.context)
            self.started_at = self.run.step
            self.context.finish(self.run.run("test"), self.run.state_dict)
        except CutOffError:
            self.context._writer.finish()  # what a process that lives a little longer would have written

    def said(self):
        return [event.text for event in self.events if isinstance(event, Message)]

    @property
    def result(self):
        (finished,) = [event for event in self.events if isinstance(event, Finished)]
        return finished.result


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
    assert steps[-1] == 30
    assert len(steps) in (3, 4)  # once an epoch of ten steps; one that is still being written puts off the next


def test_checkpoints_come_by_the_clock(tmp_path):
    work = Work(tmp_path, interval=CheckpointInterval(seconds=10_000))
    assert work.store.steps() == [30]  # the last state only
    eager = Work(tmp_path / "eager", interval=CheckpointInterval(seconds=1e-9))
    assert len(eager.store.steps()) == 2


def test_progress_and_result_are_sent_in_order(tmp_path):
    events = Work(tmp_path).events
    assert [type(event) for event in events] == [Progress] * 10 + [Finished]
    assert [event.samples for event in events[:-1]] == [24 * step for step in range(3, 31, 3)]
