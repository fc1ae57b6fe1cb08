"""The search's own record: append, read back, survive a kill in the middle of a line."""

import json

import pytest
from simulation import plan, search

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.ledger import Ledger


def test_what_was_written_comes_back(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.read(plan().to_dict()) == {}
    ledger.begin(plan().to_dict())
    finder = search(limits={"adamw": 64}, listeners=[ledger])
    assert Ledger(ledger.path).read(plan().to_dict()) == finder.finished


def test_a_line_cut_short_is_dropped_and_the_ledger_goes_on(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(plan().to_dict())
    finder = search(limits={"adamw": 64}, listeners=[ledger])
    text = ledger.path.read_text()
    ledger.path.write_text(text[: len(text) - 40])
    recorded = Ledger(ledger.path).read(plan().to_dict())
    assert len(recorded) == len(finder.finished) - 1
    search(limits={"adamw": 64}, listeners=[ledger], recorded=recorded)
    assert Ledger(ledger.path).read(plan().to_dict()) == finder.finished


def test_killed_before_the_plan_was_written_begins_afresh(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"search_id": "ab')
    assert Ledger(path).read(plan().to_dict()) == {}
    Ledger(path).begin(plan().to_dict())
    assert Ledger(path).saved_plan()["trials"] == 4


def test_another_plan_is_refused_naming_what_differs(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(plan().to_dict())
    with pytest.raises(ConfigError, match=r"trials = 3 \(it was 4\)"):
        ledger.read(plan(trials=3).to_dict())


def test_a_plan_that_extends_the_saved_one_is_written_behind_it_once(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.begin(plan().to_dict()) == 0
    finder = search(limits={"adamw": 64}, listeners=[ledger])
    assert ledger.read(plan(trials=6).to_dict()) == finder.finished
    assert [ledger.begin(plan(trials=6).to_dict()) for _ in range(2)] == [1, 1]
    assert Ledger(ledger.path).read(plan(trials=6).to_dict()) == finder.finished
    assert Ledger(ledger.path).saved_plan()["trials"] == 6
    with pytest.raises(ConfigError, match=r"trials = 4 \(it was 6\)"):
        ledger.read(plan().to_dict())


def test_search_id_stays(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(plan().to_dict())
    first = ledger.search_id
    again = Ledger(ledger.path)
    again.begin(plan().to_dict())
    assert again.search_id == first
    assert json.loads(ledger.path.read_text().splitlines()[0])["search_id"] == first
