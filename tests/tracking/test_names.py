"""Whatever a metric is called, MLflow takes the name it is given."""

import pytest
from mlflow.utils.validation import _validate_metric_name

from vrgd_ray.tracking.names import valid_name


@pytest.mark.parametrize("name", ["accuracy", "val/top 5", "f1.macro", "a-b:c", "größe"])
def test_a_name_that_is_taken_stays(name):
    assert valid_name(name) == name


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("recall@10", "recall_10"),
        ("f1(macro)", "f1_macro_"),
        ("100%\n", "100__"),
        ("/loss", "_loss"),
        ("a//b", "a__b"),
        ("../loss", "___loss"),
        ("..", "__"),
        (".", "_"),
        ("", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_any_other_is_made_valid(name, valid):
    assert valid_name(name) == valid
    _validate_metric_name(valid)
