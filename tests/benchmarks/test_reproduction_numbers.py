"""Differences, arms, rows and steps of the reproduction, against plain computations."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from benchmarks.reproduction import figures, pages, regression
from benchmarks.reproduction.arms import Arm, Arms
from benchmarks.reproduction.intervals import average, interval, paired_differences, pooled
from benchmarks.reproduction.regression import Measured, measure, step_reaching
from benchmarks.reproduction.results import Results
from benchmarks.reproduction.rows import curve_rows, limit_rows, seed_rows
from benchmarks.reproduction.searches import Search

ARM, OTHER = {1: 0.91, 2: 0.93, 3: 0.92, 9: 0.5}, {1: 0.90, 2: 0.90, 3: 0.92}
SEARCH = Search(name="s_tuned_sgd", family="sgd", arguments=())


def cell(optimizer="sgd", batch_size=128, values=(0.8, 0.82), seeds=(100, 101), **changes):
    recipe = {"lr": 0.1, "weight_decay": 0.0, "num_groups": 8, "gsnr_lower": 0.1, "gsnr_upper": 1.0}
    facts = {"optimizer": optimizer, "batch_size": batch_size, "values": list(values), "seeds": list(seeds)}
    return facts | {"steps": 10, "noise_scale": 50.0, "recipe": recipe, "claim": "exploratory"} | changes


def result(cells=(), reference=None):
    curve = {"optimizer": "sgd", "batch_size": 128, "samples": [10, 20], "values": [0.5, 0.6]}
    return {
        "reference": reference or cell(),
        "cells": list(cells),
        "curves": [curve | {"series": {"noise_scale": [None, 40.0]}}],
        "optimizers": ["sgd", "vr_sgd"],
        "batch_sizes": [128, 256],
        "noise_scale": 45.0,
        "margin": 0.01,
        "relative_margin": False,
        "alpha": 0.05,
    }


def test_the_interval_of_one_sample_is_that_of_the_paired_t_test():
    differences = paired_differences(ARM, OTHER)
    found = interval(differences, pooled([differences]))
    expected = stats.ttest_rel([0.91, 0.93, 0.92], [0.90, 0.90, 0.92]).confidence_interval(0.95)
    assert (found.mean - found.reach, found.mean + found.reach) == pytest.approx((expected.low, expected.high))


def test_one_seed_has_no_interval_and_borrows_the_spread_of_others():
    assert interval([0.1], pooled([[0.1]])).reach == math.inf
    assert interval([0.1], pooled([[0.1], [0.2, 0.4]])).reach == pytest.approx(stats.t.ppf(0.975, 1) * math.sqrt(0.02))


def test_pooling_is_the_residual_variance_of_an_analysis_of_variance():
    samples = [[1.0, 2.0, 4.0], [5.0, 5.5], [0.0, 1.0, 0.5, 0.7]]
    found = pooled(samples)
    assert found.freedom == 6
    assert found.variance == pytest.approx(sum((len(s) - 1) * statistics.variance(s) for s in samples) / 6)


def test_an_average_of_two_is_half_of_students_sum():
    first, second = [1.0, 2.0, 4.0], [5.0, 5.5, 7.5, 5.1]
    spread = pooled([first, second])
    found = average([interval(sample, spread) for sample in (first, second)])
    student = stats.ttest_ind(first, [-value for value in second], equal_var=True).confidence_interval(0.95)
    assert (2 * (found.mean - found.reach), 2 * (found.mean + found.reach)) == pytest.approx(
        (student.low, student.high)
    )


def test_intervals_cover_the_truth_as_often_as_they_say():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        samples = random.normal(0.3, 1.0, (4, 3))
        spread = pooled(samples.tolist())
        covered += abs(interval(samples[0].tolist(), spread).mean - 0.3) < interval(samples[0].tolist(), spread).reach
    assert 0.935 < covered / 2000 < 0.965


def test_every_seed_is_a_row_and_a_cell_that_diverged_is_one_without_a_value():
    cells = [cell("vr_sgd", 256), cell("vr_sgd", 512, values=[0.8]), cell("vr_sgd", 1024, [], [], recipe=None)]
    rows = seed_rows(SEARCH, result(cells))
    assert [(r["variant"], r["batch_size"], r["seed"], r["value"]) for r in rows] == [
        *(("base", 128, 100, 0.8), ("base", 128, 101, 0.82)),
        *(("vr", 256, 100, 0.8), ("vr", 256, 101, 0.82)),
        *(("vr", 512, None, None), ("vr", 1024, None, None)),
    ]
    assert (rows[2]["lr"], rows[-1]["lr"]) == (0.1, None)
    cells[1] = cell("vr_sgd", 512, values=[0.8], seeds=[100], failed_seeds=[101])
    assert seed_rows(SEARCH, result(cells)) == rows


def test_points_of_curves_have_none_where_nothing_was_logged():
    rows = curve_rows(SEARCH, result())
    assert [(r["samples"], r["value"], r["noise_scale"], r["mean_scale"]) for r in rows] == [
        (10, 0.5, None, None),
        (20, 0.6, 40.0, None),
    ]


def test_only_a_claim_counts_as_a_limit():
    cells = [cell("sgd", 256), cell("vr_sgd", 128, claim="confirmed"), cell("vr_sgd", 256, claim="confirmed")]
    found = limit_rows(SEARCH, result(cells))
    assert [(r["optimizer"], r["largest_accepted"]) for r in found] == [("sgd", None), ("vr_sgd", 256)]


def test_an_arm_that_two_searches_trained_is_taken_once():
    rows = seed_rows(SEARCH, result([cell("vr_sgd", 256, [0.7, 0.9])]))
    again = Search(name="s_other", family="sgd", variant="shuffled", arguments=())
    rows += seed_rows(again, result([cell("vr_sgd", 256, [0.6, 0.6])], cell(values=[0.1, 0.1])))
    arms = Arms(rows, scale=100)
    assert arms.values[Arm("sgd", "base", 128)] == {100: 80.0, 101: 82.0}
    assert arms.batch_sizes("sgd", "shuffled") == [256]
    assert arms.difference("sgd", 256, other="shuffled").mean == pytest.approx(20.0)
    assert arms.difference("sgd", 128) is None


@pytest.mark.parametrize(("target", "step"), [(0.1, 10.0), (10**-1.5, 15.0), (1e-2, 20.0), (1e-3, None), (2.0, None)])
def test_the_step_of_a_loss_is_log_linear_between_points(target, step):
    found = step_reaching({0: 1.0, 10: 0.1, 20: 0.01}, target)
    assert found == (step if step is None else pytest.approx(step))


def regression_rows(label, upper, end):
    search = Search(name=f"linear_regression_{label}", family="sgd", variant=label, arguments=())
    losses = {"base": [1.0, 0.01], label: [1.0, end]}
    seeds = [
        row | {"search": search.name, "variant": variant, "seed": seed, "value": values[-1]}
        for variant, values in losses.items()
        for seed in (1, 2)
        for row in [{"gsnr_lower": 0.1, "gsnr_upper": upper, "num_groups": 64}]
    ]
    curves = [
        {"search": search.name, "variant": variant, "samples": step * regression.BATCH_SIZE, "value": value}
        for variant, values in losses.items()
        for step, value in zip((0, 100), values, strict=True)
    ]
    return seeds, curves


def test_a_regression_is_measured_against_its_own_base():
    (seeds, curves), (more, points) = regression_rows("u2", 2.0, 1e-4), regression_rows("u1", 1.0, 0.1)
    fast, slow = measure(seeds + more, curves + points)
    assert (fast.gsnr_upper, fast.base_loss, fast.vr_loss) == (2.0, pytest.approx(0.01), pytest.approx(1e-4))
    assert fast.step == pytest.approx(50.0)
    assert slow.step is None


def test_pages_and_figures_show_what_diverged(tmp_path):
    rows = seed_rows(SEARCH, result([cell("sgd", 256), cell("vr_sgd", 128, [0.9, 0.93]), cell("vr_sgd", 256, [0.1])]))
    arms = Arms(rows, scale=100)
    page = pages.grid_page("Title", "command", "accuracy, %", arms)
    assert "| sgd | 128 | 81.00 ± 1.41 | 91.50 ± 2.12 | +10.50 ± 6.35 | 0.1 | 0.1 |" in page
    assert "| sgd | 256 | 81.00 ± 1.41 | diverged |  |" in page
    assert "averaged over the optimizers" not in page
    results = Results(tmp_path, "t")
    figures.grid_figure(arms, "accuracy", results.figure)
    assert "</svg>" in results.figure.read_text()


def test_an_average_over_optimizers_has_the_spread_of_all_of_them():
    rows = seed_rows(SEARCH, result([cell("vr_sgd", 128, [0.9, 0.93])]))
    other = Search(name="s_tuned_lars", family="lars", arguments=())
    rows += seed_rows(other, result([cell("vr_lars", 128, [0.7, 0.8])], cell("lars", 128, [0.7, 0.7])))
    arms = Arms(rows, scale=100)
    spread = statistics.variance([10.0, 11.0]) + statistics.variance([0.0, 10.0])
    reach = stats.t.ppf(0.975, 2) * math.sqrt(spread / 2 / 2)
    assert arms.difference("sgd", 128).reach == pytest.approx(reach)
    average_reach = stats.t.ppf(0.975, 2) * math.sqrt(spread / 2 / 2 / 2)
    assert (arms.over_families(128).mean, arms.over_families(128).reach) == pytest.approx((7.75, average_reach))
    page = pages.grid_page("Title", "command", "accuracy, %", arms)
    assert f"VR - base averaged over the rows of a batch size: +7.75 ± {average_reach:.2f} at 128." in page


def test_a_table_is_read_back_as_it_was_written(tmp_path):
    results = Results(tmp_path / "new", "t")
    results.write([(SEARCH, result([cell("vr_sgd", 256)]))])
    assert results.seeds == seed_rows(SEARCH, result([cell("vr_sgd", 256)]))
    figures.noise_figure(results.curves, results.limits, results.figure)
    page = pages.limit_page("command", results.limits)
    assert "Gradient noise scale of the tuned reference (batch 128): 50 samples" in page
    assert "| vr_sgd | none above the reference's | 1 points |" in page


def test_a_regression_that_never_gets_there_is_a_cross(tmp_path):
    found = [Measured(0.1, 2.0, 64, 0.01, 1e-4, 50.0), Measured(0.1, 1.0, 64, 0.01, None, None)]
    page = pages.regression_page("command", found)
    assert "| 0.1 | 2 | 64 | 1.00e-02 | 1.00e-04 | 50 of 100 |" in page
    assert "| 0.1 | 1 | 64 | 1.00e-02 | diverged | never |" in page
    _, curves = regression_rows("gsnr_upper_2", 2.0, 1e-4)
    figures.regression_figure(curves, found, tmp_path / "f.svg")
    assert "</svg>" in (tmp_path / "f.svg").read_text()
