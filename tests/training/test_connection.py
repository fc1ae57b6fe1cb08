"""Waiting for a cluster, with a clock and a placement group of the test's own."""

import pytest

from vrgd_ray.config import ConfigError
from vrgd_ray.search.study import TrialResources
from vrgd_ray.training.connection import wait_for_resources

GPUS = [{"GPU": 1.0}] * 4


class Group:
    """A placement group that is there once its clock reaches `ready_at`."""

    def __init__(self, ready_at):
        self.now, self.ready_at, self.asked, self.removed = 0.0, ready_at, None, False

    def wait(self, seconds):
        self.now += min(seconds, max(0.0, self.ready_at - self.now))
        return self.now >= self.ready_at


@pytest.fixture
def cluster(monkeypatch):
    """Builds the group, and a cluster with two GPUs of which one is free."""

    def build(ready_at):
        group = Group(ready_at)
        monkeypatch.setattr(
            "ray.util.placement_group", lambda bundles, strategy: setattr(group, "asked", bundles) or group
        )
        monkeypatch.setattr("ray.util.remove_placement_group", lambda removed: setattr(removed, "removed", True))
        monkeypatch.setattr("ray.cluster_resources", lambda: {"GPU": 2.0})
        monkeypatch.setattr("ray.available_resources", lambda: {"GPU": 1.0})
        return group

    return build


def wait(group, timeout, said):
    wait_for_resources(GPUS, timeout, said.append, clock=lambda: group.now)


def test_a_cluster_that_is_big_enough_is_not_spoken_of(cluster):
    group, said = cluster(ready_at=0.5), []
    wait(group, 0, said)
    assert said == []
    assert group.asked == GPUS
    assert group.removed


def test_waiting_says_what_is_asked_what_is_there_and_that_it_may_grow(cluster):
    group, said = cluster(ready_at=100), []
    wait(group, 1800, said)
    what = "4 x 1 GPU; the cluster has 2 GPU (1 free)."
    assert said[0] == f"Waiting for {what} An autoscaler may add what is missing within --wait 1800 s."
    assert said[1] == f"Still waiting, 1770 s at most, for {what}"
    assert len(said) == 4
    assert group.removed


def test_the_wait_ends_on_time_with_what_to_do_and_asks_the_autoscaler_no_longer(cluster):
    group, said = cluster(ready_at=1e9), []
    with pytest.raises(ConfigError, match=r"waited 60 s in vain for 4 x 1 GPU; .* Use fewer workers, .* --wait"):
        wait(group, 60, said)
    assert group.now == pytest.approx(60)
    assert group.removed


def test_ctrl_c_withdraws_the_request(cluster, monkeypatch):
    group = cluster(ready_at=100)

    def interrupted(sentence):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_for_resources(GPUS, 1800, interrupted, clock=lambda: group.now)
    assert group.removed


def test_a_trial_needs_its_own_place_and_those_of_its_workers():
    assert TrialResources(workers=1).needs == [{"CPU": 1}]
    assert TrialResources(workers=1, gpus_per_worker=0.5).needs == [{"CPU": 1, "GPU": 0.5}]
    assert TrialResources(workers=2, gpus_per_worker=2).needs == [{"trial_slot": 1}, {"GPU": 2}, {"GPU": 2}]
