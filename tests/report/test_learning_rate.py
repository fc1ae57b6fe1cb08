"""The sentence on the learning rate names the rule that the rates follow, and says when too little is known."""

import pytest
import synthetic_results as synthetic

from vrgd_ray.report.learning_rate import Trend, learning_rate_sentence, learning_rate_trend


@pytest.mark.parametrize(
    ("power", "rule"),
    [
        (0.0, "closest to a constant rate"),
        (0.2, "closest to a constant rate"),
        (0.5, "closest to square-root scaling"),
        (0.7, "closest to square-root scaling"),
        (1.0, "closest to linear scaling"),
        (1.5, "steeper than linear scaling"),
        (-0.5, "falling, as no scaling rule has it"),
    ],
)
def test_rates_that_follow_a_power_of_the_batch_are_recognised(power, rule):
    trend = Trend.of({batch: 0.003 * batch**power for batch in (32, 64, 256, 1024)})
    assert trend.exponent == pytest.approx(power)
    assert trend.error == pytest.approx(0, abs=1e-6)
    assert (trend.rule, trend.caution) == (rule, "")


def test_scattered_rates_and_two_batches_are_said_to_be_uncertain():
    assert "too uncertain" in Trend.of({32: 0.003, 64: 0.03, 128: 0.004}).caution
    two = Trend.of({32: 0.1, 64: 0.2})
    assert (two.error, two.rule) == (None, "closest to linear scaling")
    assert "two batch sizes only" in two.caution


def test_the_error_is_that_of_least_squares():
    trend = Trend.of({1: 1.0, 2: 1.0, 4: 2.0})  # by hand: slope 1/2, residual sum (ln 2)^2 / 6, spread 2 (ln 2)^2
    assert trend.exponent == pytest.approx(0.5)
    assert trend.error == pytest.approx((1 / 12) ** 0.5)


def test_the_sentence_is_on_the_claimed_optimizer_and_lists_the_others():
    sentence = learning_rate_sentence(synthetic.full())
    assert sentence.startswith("With adamw the best learning rate went from 0.0031 at batch 32 to 0.0226 at 512,")
    assert "as the batch to the power 0.67 ± 0.10: closest to square-root scaling." in sentence
    assert sentence.endswith("closest to square-root scaling.")  # vr_adamw's rates were carried over


def test_nothing_is_said_where_one_batch_was_tuned():
    assert learning_rate_sentence(synthetic.interrupted()) == ""
    assert learning_rate_sentence(synthetic.nothing_known()) == ""
    assert learning_rate_trend(synthetic.nothing_accepted(), "vr_adamw") is None
