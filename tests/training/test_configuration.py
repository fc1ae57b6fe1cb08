"""The file that `vrgd train` reads and keeps."""

import pytest

from vrgd_ray import ConfigError, Recipe
from vrgd_ray.training.configuration import Configuration

RECIPE = Recipe(optimizer="sgd", batch_size=64, lr=0.1)


def test_what_is_written_is_read(tmp_path):
    written = Configuration(pipeline="a:B", pipeline_args={"size": 3}, recipe=RECIPE, run_id="x")
    (tmp_path / "train.yaml").write_text(written.to_yaml())
    assert Configuration.read(tmp_path / "train.yaml") == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("a: [", "cannot be read: .*, in line 1"),
        ("pipeline: p\npipeline_args: 5\nrecipe: {}", "must hold pipeline"),
        ("pipeline: 7\nrecipe: {}", "must hold pipeline"),
        ("recipe: {}", "must hold pipeline"),
        ("- 1", "must hold"),
        ("pipeline: p\nrecipe: {optimizer: sgd, batch_size: 64, lr: 0.1, lrr: 2}", "unknown recipe field 'lrr'"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "best.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        Configuration.read(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "best.yaml").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="cannot be read"):
        Configuration.read(tmp_path / "best.yaml")


def test_differences_are_named():
    before = Configuration(pipeline="a:B", recipe=RECIPE, run_id="x")
    after = Configuration(pipeline="a:C", recipe=RECIPE.with_values(lr=0.2), run_id="y")
    assert after.differences(before) == ["pipeline = a:C (it was a:B)", "lr = 0.2 (it was 0.1)"]
    assert before.differences(before) == []
