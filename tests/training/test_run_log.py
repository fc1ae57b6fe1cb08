"""What user and tracker learn of a run with restarts and resizes."""

from vrgd_ray.tracking.null import NullTracker
from vrgd_ray.training.events import Finished, Message, Started
from vrgd_ray.training.result import Progress, TrainingResult
from vrgd_ray.training.run_log import RunLog


class Recorder(NullTracker):
    """Keeps points and tags."""

    def __init__(self):
        self.points, self.found = [], {}

    def log_point(self, samples, metrics):
        self.points.append((samples, dict(metrics)))

    def tag(self, tags):
        self.found |= tags

    def tags(self):
        return dict(self.found)


def point(step):
    return Progress(step=step, total_steps=9, samples=10 * step, metrics={"accuracy": 0.5, "num_workers": 2.0})


def test_a_run_with_a_resize_and_a_restart():
    tracker, said = Recorder(), []
    log = RunLog(tracker, said.append, "accuracy")
    log(Started(num_workers=2, samples=0))
    log(point(3))
    log(Started(num_workers=3, samples=20, curve=[]))
    log(Started(num_workers=3, samples=30, curve=[point(3)]))
    log(Message(text="The disk is full."))
    log(point(6))
    assert said == [
        "Training begins on 2 workers.",
        "step 3 of 9, 30 samples: accuracy 0.5",
        "Resize 1: training goes on from sample 20 on 3 workers.",
        "Restart 1: training goes on from sample 30 on 3 workers.",
        "The disk is full.",
        "step 6 of 9, 60 samples: accuracy 0.5",
    ]
    assert tracker.found == {"restarts": "1", "resizes": "1", "workers": "3"}
    assert tracker.points[-1] == (60, {"accuracy": 0.5, "num_workers": 2.0, "restarts": 1.0, "resizes": 1.0})
    assert {samples for samples, _ in tracker.points} == {30, 60}


def test_restarts_and_resizes_of_an_earlier_process_count_too():
    tracker, said = Recorder(), []
    tracker.tag({"restarts": "2", "resizes": "1", "workers": "3"})
    RunLog(tracker, said.append, "accuracy", resumed=True)(Started(num_workers=3, samples=20))
    RunLog(tracker, said.append, "accuracy", resumed=True)(Started(num_workers=1, samples=20))
    assert said == [
        "Restart 3: training goes on from sample 20 on 3 workers.",
        "Resize 2: training goes on from sample 20 on 1 worker.",
    ]


def test_parameters_that_could_not_be_stored_are_known():
    log = RunLog(Recorder(), print, "accuracy")
    for saved in (True, False):
        log(Finished(result=TrainingResult(metrics={}), saved=saved))
        assert log.unsaved is not saved


def test_one_worker_is_one_worker():
    said = []
    RunLog(Recorder(), said.append, "accuracy")(Started(num_workers=1, samples=0))
    assert said == ["Training begins on 1 worker."]
