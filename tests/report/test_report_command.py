"""`vrgd report`: rebuilds pages from results, compares several, and refuses bad input in one sentence."""

import json
import subprocess
import sys
import time

import pytest
import synthetic_results as synthetic

from vrgd_ray import __main__ as commands
from vrgd_ray.limit import outcome
from vrgd_ray.report import __main__ as report
from vrgd_ray.report import render_comparison, render_html


def save(folder, name, result):
    (folder / name).mkdir(parents=True)
    (folder / name / "result.json").write_text(json.dumps(result))


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three finished searches, one that still runs, and files that are no results, in runs/."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    save(folder, "first", synthetic.full())
    save(folder, "second", synthetic.nothing_accepted())
    save(folder, "third", synthetic.smaller_is_better())
    save(folder, "newer", synthetic.full(schema_version=99))
    save(folder, "list", [1])
    save(folder, "bare", {"name": "bare"})
    (folder / "broken").mkdir()
    (folder / "broken" / "result.json").write_text('{"schema_version": 1, "na')
    (folder / "running").mkdir()
    (folder / "running" / "ledger.jsonl").write_text("{}\n")
    return folder


def test_one_name_rebuilds_its_page_and_nothing_else(runs, capsys):
    before = (runs / "first" / "result.json").read_bytes()
    assert report.main(["first"]) == 0
    assert (runs / "first" / "report.html").read_text() == render_html(synthetic.full())
    assert (runs / "first" / "result.json").read_bytes() == before
    assert capsys.readouterr().out.split() == ["runs/first/report.html"]
    assert not (runs / "comparison.html").exists()


def test_numbers_that_are_none_in_an_older_result_are_not_known(runs):
    result = synthetic.full()
    result["cells"][0]["samples_per_second"] = result["curves"][0]["values"][0] = float("nan")
    (runs / "first" / "result.json").write_text(json.dumps(result))
    assert report.main(["first"]) == 0
    assert ">nan<" not in (runs / "first" / "report.html").read_text()


def test_several_names_are_rebuilt_and_compared(runs, capsys):
    assert report.main(["first", "second", "third", "first"]) == 0
    pages = [f"runs/{name}/report.html" for name in ("first", "second", "third")]
    assert capsys.readouterr().out.split() == [*pages, "runs/comparison.html"]
    results = [synthetic.full(), synthetic.nothing_accepted(), synthetic.smaller_is_better()]
    named = [{**result, "name": name} for name, result in zip(("first", "second", "third"), results, strict=True)]
    assert (runs / "comparison.html").read_text() == render_comparison(named)


def test_output_and_comparison_say_where(runs, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    assert report.main(["first", "second", "--output", str(runs), "--comparison", str(tmp_path / "both.html")]) == 0
    assert (tmp_path / "both.html").exists()
    assert not (runs / "comparison.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["firts"], "no search 'firts' in runs: did you mean 'first'?"),
        (["first", "--output", "elsewhere"], "no search 'first' in elsewhere: it holds none"),
        (["running"], "runs/running/result.json is missing: the search is still running, or was killed"),
        (["broken"], "runs/broken/result.json cannot be read"),
        (["list"], "runs/list/result.json is no result of a search"),
        (["bare"], "runs/bare/result.json is no result of a search"),
        (["newer"], "written by a newer vrgd_ray (schema_version 99)"),
        (["first", "--comparison", "x.html"], "--comparison needs two searches or more"),
        (["first", "second", "--comparison", "no/such/folder.html"], "no/such/folder.html cannot be written"),
        ([""], "no search ''"),
    ],
)
def test_bad_input_gets_one_sentence_and_status_2(arguments, message, runs, capsys):
    assert report.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_one_bad_name_among_good_ones_leaves_every_page_alone(runs):
    assert report.main(["first", "broken"]) == 2
    assert not (runs / "first" / "report.html").exists()


def test_no_name_and_help_answer_at_once_from_the_installed_command():
    started = time.monotonic()
    done = [
        subprocess.run([sys.executable, "-m", "vrgd_ray", "report", *more], capture_output=True, text=True)
        for more in (["--help"], [])
    ]
    assert time.monotonic() - started < 4
    assert [each.returncode for each in done] == [0, 2]
    assert "side by side" in done[0].stdout
    assert "NAME" in done[1].stderr


def test_the_command_is_listed_and_reads_what_a_search_writes(capsys):
    assert commands.main(["--help"]) == 0
    assert "vrgd report" in capsys.readouterr().out
    assert report.SCHEMA_VERSION == outcome.SCHEMA_VERSION
