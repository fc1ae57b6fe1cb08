"""What is drawn beside the measurements follows the formulas."""

from xml.etree import ElementTree

import pytest
import synthetic_results as synthetic

from vrgd_ray.report.cost_plot import steps_figure, time_figure
from vrgd_ray.report.facts import facts
from vrgd_ray.report.reading import MOST_CURVES, claimed_curve, predicted_steps, shown_curves
from vrgd_ray.report.scale import Scale
from vrgd_ray.report.series_plots import noise_figure, scale_figures
from vrgd_ray.report.tuning_plots import parallel_figures


def words(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_predicted_steps_obey_the_law_of_the_noise_scale():
    result = synthetic.full()
    steps, critical = result["reference"]["steps"], result["reference"]["noise_scale"]
    assert predicted_steps(result, 32) == pytest.approx(steps)
    fewest = steps / (1 + critical / 32)
    assert predicted_steps(result, 1e12) == pytest.approx(fewest)
    assert predicted_steps(result, critical) == pytest.approx(2 * fewest)  # at the critical batch, twice the fewest
    for batch in (32, 512):
        more_steps = predicted_steps(result, batch) / fewest - 1
        more_samples = batch * predicted_steps(result, batch) / (critical * fewest) - 1  # E_min = B_crit * S_min
        assert more_steps * more_samples == pytest.approx(1)


def test_figures_name_the_noise_scale_or_draw_no_prediction():
    known, unknown = synthetic.full(), synthetic.full()
    unknown["reference"] = unknown["reference"] | {"noise_scale": None}
    for draw in (steps_figure, time_figure):
        assert "needed, for a noise scale of 210" in words(draw(known))
        assert not any("needed" in word for word in words(draw(unknown)))
    assert predicted_steps(unknown, 64) is None


def test_the_predicted_batch_stands_beside_the_measured_one():
    assert "largest accepted 256" in words(noise_figure(synthetic.full()))
    assert dict(facts(synthetic.full()))["Predicted useful batch"] == (
        "about 210 samples, the noise scale (95 %: 210 to 450); largest accepted: 256"
    )
    assert "none above the reference" in dict(facts(synthetic.nothing_accepted()))["Predicted useful batch"]


def test_the_scale_is_shown_for_variance_reduced_optimizers_at_their_own_limit():
    assert [title for title, _ in scale_figures(synthetic.full())] == ["vr_adamw at batch 256"]
    assert claimed_curve(synthetic.full(), "vr_adamw")["batch_size"] == 256
    assert len(scale_figures(synthetic.many_cells())) == 3


def test_of_many_curves_the_edges_of_the_climbs_are_kept():
    result = synthetic.many_cells()
    kept = [(curve["batch_size"], curve["optimizer"]) for curve in shown_curves(result)]
    assert len(result["curves"]) > MOST_CURVES >= len(kept) - 1
    assert {(32, "adamw"), (1024, "adamw"), (2048, "adamw"), (16384, "vr_lamb"), (32768, "vr_lamb")} <= set(kept)
    assert len(shown_curves(synthetic.full())) == len(synthetic.full()["curves"])


def test_every_field_that_varied_has_a_row_and_every_trial_a_line():
    (_, svg), _ = parallel_figures(synthetic.full())
    shown = words(svg)
    assert {"batch_size", "lr", "weight_decay", "warmup_fraction", "schedule", "validation accuracy, %"} <= set(shown)
    assert {"cosine", "linear", "constant", "32", "512"} <= set(shown)
    titles = [title for title, _ in parallel_figures(synthetic.many_cells())]
    assert titles == ["sgd", "vr_sgd", "adamw", "vr_adamw", "lamb", "vr_lamb"]


def test_places_on_a_row():
    wide, narrow = Scale.of("lr", [1e-4, 1e-2]), Scale.of("beta", [0.5, 0.9])
    assert [wide.place(value) for value in (1e-4, 1e-3, 1e-2)] == pytest.approx([0, 0.5, 1])
    assert narrow.place(0.7) == pytest.approx(0.5)
    assert [label for _, label in narrow.marks()] == ["0.5", "0.7", "0.9"]
    assert Scale.of("batch_size", [128, 32, 64]).marks() == [(0, "32"), (0.5, "64"), (1, "128")]
    assert Scale.of("schedule", ["linear", "cosine"]).marks() == [(0, "cosine"), (1, "linear")]
    assert Scale.of("clip", [None, 1.0]).place(None) in (0, 1)
    assert Scale.of("lr", [0.1, 0.1]).marks() == [(0.5, "0.1")]


def test_the_power_of_the_search_is_stated_over_all_looks():
    assert dict(facts(synthetic.full()))["Power"] == (
        "seeds spread by 0.21 points; an equal batch passes with a chance of 87%, and 4 times in 5 from a margin of "
        "0.30 points"
    )
