"""The searches of the reproduction: what `vrgd tune` is called with, and which are run again."""

import json
import math
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks.reproduction import __main__ as command
from benchmarks.reproduction import regression
from benchmarks.reproduction.catalogue import TABLES, table_named
from benchmarks.reproduction.protocols import (
    CLICKS,
    DIGITS,
    LABEL_NOISE,
    PERCEPTRON,
    PERCEPTRON_END,
    RESIDUAL,
    SETTINGS,
)
from benchmarks.reproduction.results import Results
from benchmarks.reproduction.searches import Search, SearchError, Searches, as_yaml
from benchmarks.reproduction.workload import workload
from tests.pipelines import generated
from vrgd_ray import cli, tune
from vrgd_ray.limit.plan import space_context
from vrgd_ray.pipeline import load_pipeline
from vrgd_ray.search.job import Cell

PROTOCOLS = (RESIDUAL, PERCEPTRON, PERCEPTRON_END, CLICKS, DIGITS, SETTINGS, LABEL_NOISE)
SMALL = {"lr": 1e-5, "weight_decay": 1e-6, "momentum": 0.9}


@pytest.fixture
def asked():
    """Searches that were asked for; each is answered with a tuned reference."""
    return []


@pytest.fixture
def run(asked):
    def answer(search):
        asked.append(search)
        return {"reference": {"recipe": SMALL}, "cells": [], "curves": [], "optimizers": []}

    return answer


def searches_of(table, run, data="", *, gpu=False):
    return [search for search, _ in table_named(table, gpu=gpu).searches(run, data)]


def parsed(search):
    options = tune.build_parser().parse_args(list(search.arguments))
    return options, cli.pipeline_arguments(options.pipeline_args)


ROWS = {"residual": 2700, "label_noise": 5600, "clicks": 150_000}
ROWS |= dict.fromkeys(("perceptron", "perceptron_end", "settings"), 22_300)
"""Rows of the training table for which every ladder fits; a tenth is held out."""


def made_for(protocol, folder):
    """Tables that a protocol can read."""
    maker, _ = generated.MAKERS.get(protocol.pipeline, generated.MAKERS["pipelines.image_classification"])
    return str(maker(folder, (ROWS[protocol.name], 100)))


@pytest.mark.parametrize("table", [name for name in TABLES if name != "linear_regression"])
@pytest.mark.parametrize("gpu", [False, True])
def test_names_are_unique_and_every_arm_has_the_same_trials_and_seeds(table, gpu, run):
    found = searches_of(table, run, gpu=gpu)
    assert len({search.name for search in found}) == len(found)
    options = [parsed(search)[0] for search in found]
    assert len({(o.trials, o.seeds, o.full_grid, o.warm_start, o.prune) for o in options}) == 1


def test_the_controls_are_tuned_as_vr_is_and_differ_in_the_scale_alone(run):
    found = {search.variant: search for search in searches_of("residual_tuned", run) if search.family == "lars"}
    vr, shuffled = parsed(found["vr"])[0], parsed(found["shuffled"])[0]
    assert set(shuffled.settings) - set(vr.settings) == {"gsnr_control=shuffled"}
    assert (vr.pipeline_args, vr.trials) == (shuffled.pipeline_args, shuffled.trials)
    assert max(vr.batch_sizes) == max(shuffled.batch_sizes)
    assert not vr.warm_start


def test_variants_are_compared_with_a_base_under_the_same_settings(run):
    found = {search.variant: search for search in searches_of("label_noise", run)}
    fixed, decayed = found["gsnr_lower_0.01"], found["vr_more_weight_decay"]
    assert (fixed.base, decayed.base) == ("base", "base_more_weight_decay")
    assert {"weight_decay=0.0005", "gsnr_lower=0.01"} < set(parsed(fixed)[0].settings)
    assert {"weight_decay=0.0005:0.05", "gsnr_lower=0.1"} < set(parsed(decayed)[0].settings)
    assert {tuple(parsed(search)[0].batch_sizes) for search in found.values()} == {(128,)}


def test_the_usual_setting_is_tried_once(run):
    settings = [tuple(parsed(search)[0].settings) for search in searches_of("perceptron_settings", run)]
    assert len(set(settings)) == len(settings) == 3 + 3 + 2


def test_the_scaled_table_starts_from_what_equal_tuning_found_at_the_small_batch(run, asked):
    found = searches_of("table5", run)
    tuned = {search.name for search in asked} - {search.name for search in found}
    assert tuned == {search.name for search in searches_of("residual_tuned", run) if search.variant == "vr"}
    for search in found:
        options, arguments = parsed(search)
        assert arguments["scaled"] is True
        assert {name: arguments["reference"][name] for name in SMALL} == SMALL
        assert options.batch_sizes[0] == arguments["reference"]["batch_size"]
        assert options.trials == 1


def test_a_rate_at_the_edge_is_scaled_from_a_share_of_it(run):
    ((search, _),) = CLICKS.scaled(run, "data")
    assert parsed(search)[1]["reference"]["lr"] == pytest.approx(SMALL["lr"] / 4)


def test_rates_that_are_too_high_are_multiples_of_the_tuned_one(run):
    found = searches_of("residual_too_high", run)
    rates = [parsed(search)[1]["reference"]["lr"] for search in found]
    assert rates == [pytest.approx(4e-5), pytest.approx(8e-5)]
    assert [search.family for search in found] == ["sgd, 4 times the rate", "sgd, 8 times the rate"]


def test_the_tuning_that_tables_share_is_the_same_search_in_all_of_them(run, asked):
    for table in ("residual_tuned", "table5", "residual_too_high"):
        searches_of(table, run)
    arguments = {}
    for search in asked:
        assert arguments.setdefault(search.name, search.arguments) == search.arguments


def test_the_limit_is_a_plain_search():
    search, _ = next(CLICKS.limit(lambda search: {}, "data"))
    options, _ = parsed(search)
    assert (options.full_grid, options.margin, options.prune, options.warm_start) == (False, "0.005", True, True)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
def test_vrgd_tune_takes_every_search_and_ladders_end_at_half_the_data(protocol, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(command.RESULTS.parents[2]))
    data = made_for(protocol, tmp_path / "data") if protocol.reads_data else ""
    for table in (protocol.equal_tuning, protocol.scaled, protocol.limit):
        search, _ = next(table(run, data))
        assert tune.main([*search.arguments, "--show-space"]) == 0, capsys.readouterr().err
        options, arguments = parsed(search)
        assert 2 * max(options.batch_sizes) <= load_pipeline(options.pipeline, arguments).num_train_samples


def test_the_square_root_is_all_that_a_scaled_search_suggests():
    pipeline = workload("pipelines.digits", {"lr": 0.01, "batch_size": 64}, scaled=True)
    plan = SimpleNamespace(reference=pipeline.reference)
    context = space_context(plan, Cell(256, "adamw"))
    assert pipeline.search_space.suggest(None, context) == {"lr": pytest.approx(0.01 * math.sqrt(4))}


def test_the_common_setting_of_the_regression_is_searched_once(run):
    found = [search for search, _ in regression.searches(run)]
    settings = [(tuple(o.settings), p["reference"]["num_groups"]) for o, p in map(parsed, found)]
    assert len(set(settings)) == len(found) == 13


@pytest.mark.parametrize("value", [1e-6, True, {"lr": 1e-5, "name": "vr_sgd"}, 0.1, "a/b"])
def test_arguments_come_back_as_they_were(value):
    assert cli.pipeline_arguments([f"x={as_yaml(value)}"]) == {"x": value}


def write(folder, name, status):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "result.json").write_text(json.dumps({"status": status, "reason": "why"}))


def test_what_has_finished_is_read_and_what_was_begun_goes_on(tmp_path, monkeypatch):
    commands = []

    def start(words, **options):
        commands.append(words)
        write(tmp_path, words[words.index("--name") + 1], "finished")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", start)
    write(tmp_path, "done", "finished")
    write(tmp_path, "cut", "stopped")
    searches = Searches(tmp_path, ("--concurrent-trials", "2"))
    for name in ("done", "cut", "new"):
        assert searches.run(Search(name=name, family="sgd", arguments=("--seed", "3")))["status"] == "finished"
    assert [words[words.index("--name") + 1 :] for words in commands] == [["cut", "--resume"], ["new"]]
    assert commands[0][:7] == [sys.executable, "-m", "vrgd_ray.tune", "--seed", "3", "--concurrent-trials", "2"]


def test_a_search_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=2))
    write(tmp_path, "bad", "failed")
    for name, message in (("bad", "bad was failed: why"), ("none", "none was refused: see above")):
        with pytest.raises(SearchError, match=message) as raised:
            Searches(tmp_path).run(Search(name=name, family="sgd", arguments=()))
        assert raised.value.status == 2


def test_a_table_without_its_data_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduction", "table5"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "table5 needs --data" in capsys.readouterr().err


def test_nothing_to_draw_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduction", "digits_limit", "--redraw", "--results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "no results of digits_limit to draw" in capsys.readouterr().err


def recorded(optimizer, batch_size):
    return {"optimizer": optimizer, "batch_size": batch_size, "values": [0.9, 0.8], "seeds": [1, 2], "steps": 3} | {
        "noise_scale": 20.0,
        "recipe": SMALL | {"num_groups": 64, "gsnr_lower": 0.1, "gsnr_upper": 2.0},
        "claim": "confirmed",
    }


def recorded_result():
    curves = [
        {"optimizer": name, "batch_size": 32, "samples": [10, 204_800], "values": [0.9, 0.8], "series": {}}
        for name in ("sgd", "vr_sgd")
    ]
    facts = {"noise_scale": 21.0, "margin": 0.01, "relative_margin": False, "alpha": 0.05}
    facts |= {"optimizers": ["sgd", "vr_sgd"], "batch_sizes": [32, 64], "curves": curves}
    return facts | {"reference": recorded("sgd", 32), "cells": [recorded("vr_sgd", 32)]}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_drawn_again_from_its_parquet_alone(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduction", table, "--redraw", "--results", str(tmp_path)])
    search = Search(name=f"{table}_sgd", family="sgd", arguments=())
    Results(tmp_path, table).write([(search, recorded_result())])
    assert command.main() == 0
    page = capsys.readouterr().out
    assert f"python -m benchmarks.reproduction {table}" in page
    assert (
        "| vr_sgd | 32 |" in page or "| sgd | 32 |" in page or "| vr | 85.00 ± " in page or table == "linear_regression"
    )
    assert "</svg>" in (tmp_path / f"{table}.svg").read_text()


@pytest.mark.parametrize("name", [name for name in TABLES if Results(command.RESULTS, name).exist])
def test_the_pages_kept_here_are_what_the_kept_parquet_says(name, tmp_path):
    kept = Results(command.RESULTS, name)
    for file in command.RESULTS.glob(f"{name}_*.parquet"):
        shutil.copy(file, tmp_path)
    drawn = Results(tmp_path, name)
    TABLES[name].draw(drawn, f"python -m benchmarks.reproduction {name}")
    assert drawn.page.read_text() == kept.page.read_text()
    assert kept.figure.exists()
