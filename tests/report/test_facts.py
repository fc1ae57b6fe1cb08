"""The facts state what was tested at which level, and what became of the trials."""

import synthetic_results as synthetic

from vrgd_ray.report.facts import facts


def fact(name, **changes):
    return dict(facts(synthetic.full(**changes)))[name]


def levels(**of_optimizers):
    cells = synthetic.full()["cells"]
    return [cell | {"level_per_look": of_optimizers[cell["optimizer"]]} for cell in cells]


def test_one_level_where_all_optimizers_climb_at_the_same():
    starts, cells = {"adamw": 64, "vr_adamw": 64}, levels(adamw=0.0125, vr_adamw=0.0125)
    told = fact("Level", starts=starts, cells=cells)
    assert told == "5 % in all (one-sided), 1.25 % for each of 2 optimizers at each of 2 looks of its climb"
    assert fact("Level") == told  # of a version that did not know starts


def test_optimizers_that_start_from_different_rungs_have_a_level_each():
    starts, cells = {"adamw": 64, "vr_adamw": 128}, levels(adamw=0.0125, vr_adamw=0.00625)
    told = fact("Level", starts=starts, cells=cells, level_per_look=0.00625)
    assert "1.25 % for adamw, 0.625 % for vr_adamw at each of 2 looks" in told
    assert "the claim itself" not in told
    cells[4]["level_per_look"] = 0.003  # 256 with adamw
    told = fact("Level", starts=starts, cells=cells, level_per_look=0.00625)
    assert told.endswith("the claim itself was tested at 0.3 % a look")


def test_trials_without_a_metric_are_told_by_cause():
    cells = [synthetic.cell(64, "adamw", 0.0, "accept", "confirmed", diverged=1, broken=2, pruned=3)]
    told = fact("Trials for each batch and optimizer", cells=cells)
    assert told == "8, reference included; 1 diverged; 2 failed; 3 stopped early"
