"""A training run as tracking systems know it: how its end is told."""

import pytest

from vrgd_ray import Recipe
from vrgd_ray.training.record import training_record
from vrgd_ray.training.result import TrainingResult

RECIPE = Recipe(optimizer="adamw", batch_size=32, lr=0.1)


def record(**result):
    whole = TrainingResult(**{"metrics": {"accuracy": 0.9}, "steps": 10, "samples": 320, "seconds": 2.0, **result})
    return training_record(key="k", name="n", tags={"role": "search"}, recipe=RECIPE, result=whole, group="cell")


@pytest.mark.parametrize(
    ("result", "status", "tags"),
    [
        ({}, "FINISHED", {}),
        ({"pruned": True}, "KILLED", {"pruned": "true"}),
        ({"metrics": {}, "diverged": True}, "FAILED", {"diverged": "true"}),
        ({"metrics": {}, "diverged": True, "error": "E: no"}, "FAILED", {"diverged": "true", "error": "E: no"}),
    ],
)
def test_status_and_tags_say_how_it_ended(result, status, tags):
    found = record(**result)
    assert found.status == status
    assert found.tags == {"role": "search", **tags}
    assert (found.samples, found.group, found.params["lr"]) == (320, "cell", 0.1)
    assert found.metrics["samples"] == 320.0
