"""Categories and numbers of a table, and the model over them."""

import generated
import numpy as np
import pyarrow as pa
import pytest
import torch

from pipelines._features import Features
from pipelines.click_through import DLRM, ClickThrough
from vrgd_ray import ConfigError, ParquetTable


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(generated.table(tmp_path_factory.mktemp("table")))


def features(folder, table_size=100, hashed=4, codes=()):
    return Features(ParquetTable(f"{folder}/train", remedy=""), codes, [], table_size, hashed)


def test_known_categories_have_rows_of_their_own_and_unseen_ones_share_the_hashed(folder):
    made = features(folder)
    vocabulary = made.vocabularies[0]
    assert sorted(vocabulary.values()) == [0, 1, 2]
    batch = pa.record_batch({"colour": ["violet", "red", "violet", None, *vocabulary], "amount": [0.0] * 7})
    batch = batch.append_column("instance_weight", pa.array([0.0] * 7)).append_column("label", pa.array([0] * 7))
    batch = batch.append_column("industry_code", pa.array([1] * 7))
    rows = made.converter()(batch)["categories"][:, 0]
    assert rows[1] == vocabulary["red"]
    assert rows[0] == rows[2]
    assert {rows[0], rows[3]} <= {3, 4, 5, 6}
    np.testing.assert_array_equal(rows[4:], list(vocabulary.values()))
    assert made.table_sizes[0] == 7


def test_only_the_most_frequent_categories_get_rows_of_their_own(folder, tmp_path):
    generated.write(tmp_path, "train", {"c": list("aaabbcd"), "x": [1.0] * 7, "label": [0, 1] * 3 + [0]})
    made = features(tmp_path, table_size=2, hashed=3)
    assert made.vocabularies == [{"a": 0, "b": 1}]
    assert made.table_sizes == [5]


def test_numbers_are_logarithms_and_empty_fields_zero(tmp_path):
    numbers = [0.0, 99.0, -99.0, None, float("nan")]
    generated.write(tmp_path, "train", {"c": list("abcde"), "x": numbers, "label": [0, 1, 0, 1, 0]})
    made = features(tmp_path)
    table = ParquetTable(f"{tmp_path}/train", remedy="")
    found = table.mapped(made.columns, made.converter(), made.key)["numbers"][:, 0]
    np.testing.assert_allclose(found, [0, np.log(100), -np.log(100), 0, 0], rtol=1e-6)


def test_columns_called_as_those_of_census_income_are_as_any_other_in_another_table(folder):
    batch = ClickThrough(folder).train_data()[np.arange(5)]
    assert batch["numbers"].shape == (5, 3)
    assert batch["categories"].shape == (5, 1)


def test_ignored_columns_are_no_features_and_codes_are_categories(folder):
    pipeline = ClickThrough(folder, codes=["industry_code"], ignored=["instance_weight"])
    batch = pipeline.train_data()[np.arange(5)]
    assert batch["numbers"].shape == (5, 1)
    assert batch["categories"].shape == (5, 2)
    torch.testing.assert_close(
        pipeline.train_data()[np.arange(1800)]["numbers"].mean(), torch.tensor(0.0), atol=1e-5, rtol=0
    )


def test_columns_can_be_named_codes_or_ignored(tmp_path):
    columns = {"c": ["a", "b"], "area": [12, 70], "id": [1, 2], "x": [1.0, 2.0], "label": [0, 1]}
    for name in ("train", "test"):
        generated.write(tmp_path, name, columns)
    batch = ClickThrough(str(tmp_path), codes=["area"], ignored=["id"]).train_data()[np.arange(1)]
    assert batch["categories"].shape == (1, 2)
    assert batch["numbers"].shape == (1, 1)


def test_pairs_are_multiplied_and_put_beside_the_numbers():
    torch.manual_seed(0)
    model = DLRM([3, 5], 4, 6, [8], [7])
    numbers, categories = torch.randn(9, 4), torch.stack([torch.arange(9) % 3, torch.arange(9) % 5], 1)
    for row in range(9):
        below = model.bottom(numbers[row])
        first, second = (table.weight[categories[row, i]] for i, table in enumerate(model.tables))
        products = torch.stack([first @ below, second @ below, second @ first])
        expected = model.top(torch.cat([below, products]))
        torch.testing.assert_close(model(numbers, categories)[row : row + 1], expected)


def test_the_metric_is_the_share_of_pairs_in_the_right_order(folder):
    pipeline = ClickThrough(folder, subset=60)
    torch.manual_seed(0)
    model, data = pipeline.build_model().eval(), pipeline.test_data()
    batch = data[np.arange(60)]
    with torch.no_grad():
        scores = model(batch["numbers"], batch["categories"])
        found = pipeline.evaluate(model, data)
    positive, negative = scores[batch["label"] == 1], scores[batch["label"] == 0]
    order = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative)
    assert found["auc"] == pytest.approx(order.mean().item())


def test_scores_out_of_range_are_the_worst_there_is(folder):
    pipeline = ClickThrough(folder, subset=60)
    model = pipeline.build_model().eval()
    with torch.no_grad():
        model.top[-1].bias.fill_(torch.inf)
        assert pipeline.evaluate(model, pipeline.test_data())["auc"] == -np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "data = FOLDER is needed.*python -m pipelines.click_through prepare"),
        ({"codes": ["colur"]}, "lacks colur"),
        ({"table_size": 0}, "table_size = 0"),
        ({"bottom": [0]}, r"bottom = \[0\] must be widths above 0"),
        ({"top": [8, -1]}, "top = "),
        ({"subset": -1}, "subset = -1"),
    ],
)
def test_bad_arguments_are_refused(folder, arguments, message):
    with pytest.raises(ConfigError, match=message):
        ClickThrough(**({"data": folder} | arguments if arguments else {}))


def test_bad_tables_are_refused(tmp_path):
    for name in ("train", "test"):
        generated.write(tmp_path, name, {"x": [1.0, 2.0], "label": [0, 1]})
    with pytest.raises(ConfigError, match="no columns of text or codes"):
        ClickThrough(str(tmp_path))
    generated.write(tmp_path, "train", {"x": [1.0, 2.0], "c": ["a", "b"], "label": [0, 1]})
    with pytest.raises(ConfigError, match="test lacks c"):
        ClickThrough(str(tmp_path))
    generated.write(tmp_path, "train", {"x": [[1.0], [2.0]], "c": ["a", "b"], "label": [0, 1]})
    with pytest.raises(ConfigError, match=r"x in the table .* neither numbers nor text; list it in ignored"):
        ClickThrough(str(tmp_path))


def altered(folder, test=None, **columns):
    """Tables of ten rows, with these columns changed, those of `test` in the test table alone."""
    rows = {"colour": ["red", "blue"] * 5, "amount": [1.0] * 10, "label": [0, 1] * 5} | columns
    generated.write(folder, "train", rows)
    generated.write(folder, "test", rows | (test or {}))
    return str(folder)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ([1, 2] * 5, "label holds 2; it must be 0 or 1"),
        ([0, None] * 5, "label holds None; it must be 0 or 1"),
        ([0.0, 0.5] * 5, "label holds 0.5; it must be 0 or 1"),
        (["yes", "no"] * 5, "label in the table .* holds string, not 0 and 1"),
        ([1] * 10, "held out for evaluation are of one class"),
    ],
)
def test_labels_that_are_not_two_classes_are_refused(tmp_path, label, message):
    with pytest.raises(ConfigError, match=message):
        ClickThrough(altered(tmp_path, label=label)).test_data()


def test_categories_as_pandas_writes_them_and_numbers_beyond_double_precision(tmp_path):
    colours = pa.array(["red", "blue"] * 5).dictionary_encode()
    pipeline = ClickThrough(altered(tmp_path, colour=colours, amount=[2**62] * 9 + [1], label=[True, False] * 5))
    batch = pipeline.test_data()[np.arange(10)]
    assert len(set(batch["categories"][:, 0].tolist())) == 2
    assert batch["numbers"].isfinite().all()
    assert batch["label"].tolist() == [1, 0] * 5


ACCOUNTS = [20_000_000_000, 10_000_000_001] * 5


@pytest.mark.parametrize(
    ("column", "train", "test", "message"),
    [
        (
            "code",
            ACCOUNTS,
            [*map(float, ACCOUNTS[1:]), None],
            "code holds double .*test but int64 in .*train; write it as int64",
        ),
        ("code", pa.array([0, 1] * 5, pa.int8()), [False, True] * 5, "code holds bool .* but int8"),
        ("code", ACCOUNTS, [*map(str, ACCOUNTS)], "code holds string .* but int64"),
        ("code", pa.array([0.1, 0.2] * 5, pa.float32()), [0.1, 0.2] * 5, "code holds double .* but float"),
        ("colour", ["1", "2"] * 5, [1, 2] * 5, "colour holds int64 .* but string"),
        ("amount", [1.0] * 10, ["1.0"] * 10, "amount holds string .* but double"),
    ],
)
def test_a_column_that_would_read_otherwise_in_the_test_table_is_refused(tmp_path, column, train, test, message):
    folder = altered(tmp_path, {column: test}, **{"code": [1] * 10, column: train})
    with pytest.raises(ConfigError, match=message):
        ClickThrough(folder, codes=["code"])


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (ACCOUNTS, pa.array(ACCOUNTS, pa.uint64())),
        (ACCOUNTS, pa.array(ACCOUNTS).dictionary_encode()),
        (["a", "b"] * 5, pa.array(["a", "b"] * 5, pa.large_string()).dictionary_encode()),
    ],
)
def test_types_that_give_the_same_categories_are_read_alike(tmp_path, train, test):
    pipeline = ClickThrough(altered(tmp_path, {"code": test, "amount": [1] * 10}, code=train), codes=["code"])
    rows = pipeline.test_data()[np.arange(10)]["categories"]
    assert rows[:, pipeline._features.categories.index("code")].tolist() in ([0, 1] * 5, [1, 0] * 5)


def standardised(folder, late, **arguments):
    """The training rows' numbers, of a column that is `late` in the last eighth of the table and 0 before."""
    size = 400
    column = np.where(np.arange(size) >= size * 7 // 8, late, 0.0)
    rows = {"colour": ["red", "blue"] * (size // 2), "amount": column, "label": [0, 1] * (size // 2)}
    for name in ("train", "test"):
        generated.write(folder, name, rows)
    data = ClickThrough(str(folder), **arguments).train_data()
    return data[np.arange(len(data))]["numbers"][:, 0]


def test_the_rows_looked_at_for_the_deviation_are_spread_over_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.click_through._ROWS_LOOKED_AT", 100)
    numbers = standardised(tmp_path, late=1000.0)
    assert numbers.abs().max() < 4
    assert numbers.std().item() == pytest.approx(1.0, abs=0.1)


def test_a_number_constant_in_the_rows_looked_at_is_not_blown_up_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.click_through._ROWS_LOOKED_AT", 1)
    assert standardised(tmp_path, late=1000.0).max().item() == pytest.approx(np.log(1001))
    assert standardised(tmp_path, late=0.0).abs().max() == 0


def test_a_small_quantity_has_deviation_1_too(tmp_path):
    assert standardised(tmp_path, late=1e-9).std().item() == pytest.approx(1.0, abs=0.01)
