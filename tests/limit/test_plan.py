"""Plans are checked whole before anything runs."""

import pytest
from simulation import REFERENCE, SimulatedPipeline, plan

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.plan import checked_ladder, default_ladder
from vrgd_ray.search.job import Cell


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizers": ("adamww",)}, "did you mean 'adamw'"),
        ({"optimizers": ()}, "optimizers"),
        ({"optimizers": ("adamw",), "batch_sizes": (32,)}, "adamw at batch 32 is the reference itself; add a larger"),
        ({"batch_sizes": (32, 100)}, r"batch_size = 100 .*multiple.* 96 and 104"),
        ({"batch_sizes": (32, 4096)}, r"batch_size = 4096 is above the 2048 training samples"),
        ({"trials": 0}, "trials = 0"),
        ({"seeds": 1}, "seeds = 1"),
        ({"seed": -1}, "seed = -1"),
        ({"width": 0}, "concurrent_trials = 0"),
        ({"settings": ("lrr=0.1",)}, "did you mean 'lr'"),
        ({"settings": ("num_groups=8,12",)}, "num_groups = 12"),
        ({"settings": ("epochs=3",)}, "epochs"),
        ({"reference": REFERENCE.with_values(optimizer="vr_adamw")}, "base optimizer"),
        ({"reference": REFERENCE.with_values(epochs=0.001)}, "less than one step"),
    ],
)
def test_invalid_plans_are_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        plan(**changes)


def test_default_ladder_doubles_up_to_half_of_the_training_set():
    assert default_ladder(SimulatedPipeline(), None) == (32, 64, 128, 256, 512, 1024)
    assert default_ladder(SimulatedPipeline(), 200) == (32, 64, 128)


@pytest.mark.parametrize("top", [16, 0, -1])
def test_default_ladder_needs_room_to_climb(top):
    with pytest.raises(ConfigError, match=f"max_batch_size = {top} is below the reference batch"):
        default_ladder(SimulatedPipeline(), top)


def test_given_ladder_is_sorted_and_begins_with_the_reference():
    assert checked_ladder([256, 64], 32) == (32, 64, 256)
    with pytest.raises(ConfigError, match="batch_sizes is empty"):
        checked_ladder([], 32)
    with pytest.raises(ConfigError, match="below the reference"):
        checked_ladder([16, 64], 32)


def test_reference_cell_is_no_candidate():
    assert Cell(32, "adamw") not in list(plan().cells())
    assert Cell(32, "vr_adamw") in list(plan().cells())


def test_seeds_of_different_purposes_never_meet():
    p = plan(seeds=200)
    looks = range(400)
    confirm = {p.confirmation_seed(i) for i in looks}
    control = {p.confirmation_seed(i, control=True) for i in looks}
    following = {plan(seed=1).tuning_seed}
    assert not confirm & control
    assert not (confirm | control) & ({p.tuning_seed} | following)
