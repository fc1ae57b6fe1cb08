"""The sentence on the controls claims no more than they show."""

import pytest
import synthetic_results as synthetic

from vrgd_ray.report import scale_sentence, summary_sentence
from vrgd_ray.report.gain import gain_sentence


def told(constant, shuffled, optimizers=("adamw", "vr_adamw")):
    controls = {"batch_size": 256, "optimizer": "vr_adamw"}
    controls |= {"constant": {"verdict": constant}, "shuffled": {"verdict": shuffled}}
    return gain_sentence({"controls": controls, "optimizers": optimizers})


@pytest.mark.parametrize("verdicts", [("better", "better"), ("diverged", "better")])
def test_worse_controls_speak_for_knowing_the_noisy_elements(verdicts):
    assert told(*verdicts).startswith("What 256 with vr_adamw gains comes from knowing which elements are noisy")


@pytest.mark.parametrize(
    ("verdicts", "role"),
    [
        (("equal", "better"), "mean scale"),
        (("better", "equal"), "shuffled"),
        (("equal", "equal"), "mean scale"),
        (("unclear", "equal"), "shuffled"),
    ],
)
def test_a_control_that_does_as_well_speaks_for_a_shorter_step(verdicts, role):
    assert "from a shorter step and more decay" in told(*verdicts)
    assert role in told(*verdicts)


def test_without_the_base_no_gain_is_taken_for_granted():
    assert told("better", "better", ["vr_adamw"]).startswith("Whatever 256 with vr_adamw may gain comes from knowing")


@pytest.mark.parametrize("verdicts", [("unclear", "better"), ("better", "unclear"), ("unclear", "diverged")])
def test_else_it_cannot_be_told(verdicts):
    assert "cannot be told" in told(*verdicts)


def test_without_controls_nothing_is_said():
    assert gain_sentence(synthetic.full()) == gain_sentence({"controls": None}) == ""
    assert told("not tested", "better") == ""


def test_the_sentence_follows_what_is_said_of_the_limit():
    controls = {"batch_size": 256, "optimizer": "vr_adamw"} | {
        r: {"verdict": "equal"} for r in ("constant", "shuffled")
    }
    assert scale_sentence(synthetic.full(controls=controls)).endswith("do as well within the margin.")


def test_a_continued_search_says_what_its_looks_cost():
    assert "continued" not in summary_sentence(synthetic.full())
    assert "at a level of 2.5 %; over all its verdicts the chance of a wrong claim is 7.5 %." in summary_sentence(
        synthetic.full(continuation=1, alpha=0.025, alpha_total=0.075)
    )
