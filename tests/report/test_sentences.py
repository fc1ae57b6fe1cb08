"""Sentences claim what the result shows and no more."""

import pytest
import synthetic_results as synthetic

from vrgd_ray.report import control_sentence, scale_sentence, summary_sentence
from vrgd_ray.report.table import verdict_words


def test_the_headline_names_batch_optimizer_margin_and_steps_saved():
    assert summary_sentence(synthetic.full()) == (
        "Largest batch without loss: 256 with adamw (accuracy 97.1, difference -0.30 [-0.65, +0.05] to batch 32, "
        "margin 1.0 points): 128 steps instead of 1031, 8.1 times fewer."
    )


def test_nothing_accepted_is_said_with_the_first_failure():
    assert summary_sentence(synthetic.nothing_accepted()) == (
        "No batch above 32 was accepted within the margin: the smallest tested, 64 with adamw, was rejected "
        "(accuracy 95.4, difference -2.00 [-2.35, -1.65] to batch 32, margin 1.0 points)."
    )


def test_an_interrupted_search_gives_no_verdict():
    told = summary_sentence(synthetic.interrupted())
    assert told.startswith("No verdict: the reference has not been trained.")
    assert "interrupted" in told
    assert "not known" in scale_sentence(synthetic.interrupted())


def test_a_failed_control_takes_the_claims_back():
    result = synthetic.control_failed()
    assert summary_sentence(result).startswith("Not reliable, because the control failed: largest batch")
    assert "too tight for these seeds" in control_sentence(result)
    assert "cannot be told" in scale_sentence(result)


def test_a_control_that_failed_says_no_more_than_it_shows():
    result = synthetic.control_failed()
    result["paired"] = True
    assert "read their intervals" in control_sentence(result)
    result["control"] |= {"verdict": "reject", "reason": "a seed diverged"}
    assert "a seed of the reference diverged, so the reference is not stable" in control_sentence(result)
    assert scale_sentence(result) == "Whether vr_adamw moves the limit cannot be told: the control failed."


def test_a_control_that_an_error_broke_is_neither_failed_nor_passed():
    result = synthetic.full()
    result["control"] |= {"verdict": "reject", "reason": "RuntimeError: the trial's process was lost."}
    told = summary_sentence(result)
    assert told.startswith("Not reliable, because the control could not be trained: largest batch")
    assert "(RuntimeError: the trial's process was lost), so whether the margin suits" in told
    assert "too tight" not in told + scale_sentence(result)


def test_a_control_rejected_by_no_bounds_was_lost_even_if_nothing_says_so():
    result = synthetic.control_failed()
    result["control"]["verdict"] = "reject"  # though -0.013 to +0.003 does not reject
    assert "a seed of the reference diverged or met an error" in control_sentence(result)
    result["control"] |= {"lower": -0.03, "upper": -0.02}
    assert "too tight for these seeds" in control_sentence(result)


def test_a_claim_whose_control_was_not_tested_says_so():
    untested = synthetic.interrupted()["control"]
    told = summary_sentence(synthetic.full(status="stopped", control=untested))
    assert told.startswith("Largest batch without loss: 256")
    assert "(the reference against itself with other seeds) was not tested, so" in told
    assert "was not tested" not in summary_sentence(synthetic.interrupted())  # nothing leans on it there


def test_a_claim_of_a_search_that_failed_is_taken_back():
    failed = synthetic.full(status="failed", reason="a seed of the reference diverged")
    assert summary_sentence(failed).startswith("Not reliable, because the search failed: largest batch")
    assert scale_sentence(failed) == "Whether vr_adamw moves the limit cannot be told: the search failed."
    assert "no batch above 32 is claimed: a seed of the reference" in summary_sentence(failed | {"largest": None})


def test_a_seed_that_diverges_at_the_second_look_overrules_the_bounds_of_the_first():
    result = synthetic.nothing_accepted()
    result["cells"][0] |= {"lower": -0.021, "upper": 0.02, "reason": "a seed diverged"}
    assert "64 with adamw, was rejected: a seed diverged (margin 1.0 points)." in summary_sentence(result)


@pytest.mark.parametrize(
    ("broken", "reason", "hint"),
    [
        (0, "of 8 trials, 4 diverged and 4 were stopped early (--no-prune trains them to their end)", "end))."),
        (1, "of 8 trials, 7 diverged and 1 failed: RuntimeError: lost", "lost); --resume tries again what an error"),
    ],
)
def test_a_cell_without_a_usable_trial_tells_what_became_of_them(broken, reason, hint):
    result = synthetic.full()
    result["cells"][-1] |= {"verdict": "reject", "reason": reason, "difference": None, "mean": None, "broken": broken}
    told = summary_sentence(result)
    assert f"512 with vr_adamw was rejected without a comparison ({reason}" in told
    assert hint in told
    assert "says nothing of its accuracy" not in told
    assert verdict_words(result["cells"][-1]) == "rejected: no trial could be used"


def test_what_could_not_be_trained_is_no_limit_of_accuracy():
    result = synthetic.full()
    error = "all 8 trials failed: OutOfMemoryError: CUDA out of memory"
    result["cells"][-1] |= {"verdict": "reject", "reason": error, "difference": None, "mean": None}
    assert f"512 with vr_adamw could not be trained ({error}); that says nothing of its accuracy" in summary_sentence(
        result
    )
    assert verdict_words(result["cells"][-1]) == "rejected: could not be trained"
    older = {"diverged": 8, "recipe": None}  # files without a count of broken trials call them diverged
    assert verdict_words(result["cells"][-1] | older) == "rejected: could not be trained"
    for reason in ("all 8 trials failed (diverged)", "all 8 trials diverged", "a seed diverged"):
        result["cells"][-1]["reason"] = reason
        assert "could not be trained" not in summary_sentence(result)


def test_few_seeds_are_said_to_be_few():
    assert "leans on seeds that spread normally" in summary_sentence(synthetic.full(looks=[3, 6]))
    assert "leans" not in summary_sentence(synthetic.full(looks=[5, 10]))


def test_a_relative_margin_of_a_falling_metric():
    told = summary_sentence(synthetic.smaller_is_better())
    assert (
        "64 with sgd (loss 2.04, difference -0.040 [-0.090, +0.010] to batch 32, margin 5 % of the reference)" in told
    )
    assert scale_sentence(synthetic.smaller_is_better()) == "No variance-reduced optimizer was compared."


def test_the_top_of_the_ladder_leaves_the_limit_open():
    assert "the limit may lie higher" in summary_sentence(synthetic.full(batch_sizes=[64, 128, 256]))


def test_exploratory_cells_are_a_hint():
    result = synthetic.full()
    result["cells"][-1] |= {"verdict": "accept", "claim": "exploratory"}
    assert "512 with vr_adamw passed as well; that is a hint, not a claim" in summary_sentence(result)


def test_an_exploratory_cell_is_not_the_first_that_was_not_accepted():
    result = synthetic.nothing_accepted()
    result["cells"][0] |= {"verdict": "accept", "claim": "exploratory", "lower": -0.005}
    result["cells"].append(synthetic.cell(32, "vr_adamw", -0.05, "reject", "exploratory"))
    told = summary_sentence(result)
    assert told.startswith(
        "No batch above 32 is claimed: the smallest that was not accepted, 32 with vr_adamw, was rejected ("
    )
    assert "64 with adamw passed as well; that is a hint, not a claim" in told


def test_stopping_and_missing_spread_are_said():
    result = synthetic.full(status="stopped", reason="--max-hours is over")
    result["cells"][0]["degenerate"] = True
    told = summary_sentence(result)
    assert "The search was stopped before its end (--max-hours is over); so much is known." in told
    assert "No seed differed from another for 64 with adamw" in told
    assert "No pair of seeds differed by another amount for 64" in summary_sentence({**result, "paired": True})


def without(result, *cells):
    return result | {"cells": [c for c in result["cells"] if (c["batch_size"], c["optimizer"]) not in cells]}


def test_equal_limits_are_no_gain():
    assert scale_sentence(synthetic.full()) == (
        "vr_adamw did not move the limit: 256 with either optimizer (accuracy 97.0 against 97.1)."
    )


def test_a_higher_limit_says_what_ended_the_other_climb_and_claims_no_comparison():
    result = synthetic.full()
    cell = next(c for c in result["cells"] if (c["batch_size"], c["optimizer"]) == (256, "adamw"))
    cell |= {"verdict": "inconclusive", "claim": "exploratory"}
    assert scale_sentence(result) == (
        "vr_adamw was accepted up to batch 256, adamw up to 128: 256 with adamw was inconclusive, "
        "which does not mean that it is worse."
    )
    cell["verdict"] = "reject"
    assert scale_sentence(result).endswith("adamw up to 128: 256 with adamw was rejected.")


def test_the_reference_batch_is_no_limit_of_another_optimizer():
    cells = [
        synthetic.cell(32, "lamb", -0.05, "reject", "exploratory"),
        synthetic.cell(32, "vr_lamb", 0.0, "accept", "confirmed"),
        synthetic.cell(64, "vr_lamb", 0.0, "accept", "confirmed"),
    ]
    told = scale_sentence(synthetic.full(cells=cells, optimizers=["lamb", "vr_lamb"]))
    assert told == "vr_lamb was accepted up to batch 64, lamb at none: 32 with lamb was rejected."


def test_a_lower_limit_is_said():
    told = scale_sentence(without(synthetic.full(), (256, "vr_adamw")))
    assert told == "vr_adamw did not move the limit: 256 with adamw, while 512 with vr_adamw was rejected."


def test_what_could_not_be_trained_decides_nothing_about_the_limit():
    result = synthetic.full()
    lost = {"verdict": "reject", "reason": "OutOfMemoryError: CUDA out of memory"}
    result["cells"][-1] |= lost
    told = scale_sentence(result)
    assert told == "Whether vr_adamw moves the limit is not known: 512 with vr_adamw could not be trained."
    result = synthetic.full()
    result["cells"][4] |= lost
    assert scale_sentence(result).endswith("256 with adamw could not be trained, which says nothing of its accuracy.")


def test_a_failed_control_takes_back_no_verdict_where_there_is_none():
    result = synthetic.control_failed() | {"cells": [], "largest": None}
    told = summary_sentence(result)
    assert told.startswith("No verdict: no batch above 32 has been tested to the end. The control failed")


def test_exploratory_acceptance_is_no_gain():
    result = synthetic.full()
    result["cells"][-1] |= {"verdict": "accept", "claim": "exploratory"}
    assert "did not move the limit" in scale_sentence(result)


def test_neither_accepted():
    told = scale_sentence(synthetic.nothing_accepted())
    assert told == "vr_adamw did not move the limit: neither it nor adamw was accepted above batch 32."


def test_a_vr_optimizer_without_its_base_is_not_compared():
    result = without(synthetic.full(optimizers=["vr_adamw"]), *((b, "adamw") for b in (64, 128, 256, 512)))
    assert "without its base adamw" in scale_sentence(result)


def test_thin_tuning_is_said():
    result = synthetic.full()
    result["reference"] = result["reference"] | {"trials": 3}
    assert "Each cell was tuned with 3 trials only" in summary_sentence(result)
    result["reference"] = result["reference"] | {"trials": 8}
    assert "trials only" not in summary_sentence(result)
