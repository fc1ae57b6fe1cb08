"""What the README shows can be typed: its pipeline loads and runs, its flags exist, its links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from vrgd_ray import train, tune
from vrgd_ray.report import __main__ as report

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture
def moons(tmp_path, monkeypatch):
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "class Moons" in block]
    (tmp_path / "my_pipeline.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_pipeline"
    sys.modules.pop("my_pipeline", None)


def test_the_pipeline_of_the_readme_trains_to_a_sensible_accuracy(moons):
    from vrgd_ray.pipeline import load_pipeline
    from vrgd_ray.training.context import LocalContext
    from vrgd_ray.training.loop import train as train_recipe

    pipeline = load_pipeline(moons)
    assert train_recipe(pipeline, pipeline.reference, LocalContext(), split="test").metrics["accuracy"] > 0.93


def test_the_dry_run_of_the_readme_works(moons, capsys):
    assert tune.main(["--pipeline", moons, "--dry-run", "--max-batch-size", "128"]) == 0
    assert "1 % of the reference's accuracy" in capsys.readouterr().out


def test_every_flag_in_the_readme_exists():
    known = {flag for command in (tune, train, report) for flag in command.build_parser()._option_string_actions}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--backend-store-uri"}
    assert named
    assert named <= known


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").iterdir())]
)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target
