"""Click-through rates, or any yes or no, from categories and numbers in Parquet: DLRM (arXiv 1906.00091).

python -m pipelines.click_through prepare --source downloads --output data/census_income
python -m vrgd_ray.tune --pipeline pipelines.click_through --pipeline-args data=data/census_income
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pipelines._features import Features
from pipelines._prepare import command, main, need
from pipelines._rows import AnyRows, Rows, some, train_and_validation
from pipelines._tabular_sources import CENSUS_COLUMNS, SOURCES, convert_tables
from vrgd_ray import MappedArrays, ParquetTable, Recipe

Array: TypeAlias = np.ndarray[Any, Any]
_CENSUS_CODES = ("industry_code", "occupation_code", "own_business", "veterans_benefits", "year")
_CENSUS_IGNORED = ("instance_weight",)
_EVALUATED_AT_ONCE = 8192
_LABELS_LOOKED_AT = 1_000_000
_ROWS_LOOKED_AT = 100_000


class ClickThrough:
    """One epoch over a table of yes and no, judged by the area under the ROC curve (arXiv 2309.13681, section 6).

    Text is categories, numbers are quantities; where a table has all columns of Census-Income, those of its whole
    numbers that are codes count as categories, and its survey weight is left out. Each category is a row of its
    column's embedding table. The gradient of a table is dense, since the variance over groups is needed of every row.
    The margin is 0.002, as much as the optimizers compared in the paper differ by at small batches.

    Args:
        data: folder or URI with the tables `train` and `test`: `label`, 0 or 1, and any columns of text and numbers.
        embedding: length of an embedding, and of what the numbers are brought to.
        bottom: widths of the layers over the numbers.
        top: widths of the layers over the interactions.
        codes: further columns of whole numbers that name categories.
        ignored: further columns that are no features.
        table_size: most rows of their own that the categories of a column get.
        hashed: rows that its other categories share by hash.
        subset: training rows to keep, and at most that many for validation and test each.

    Raises:
        ConfigError: a table or a column is missing, and the message has the command that makes the tables; or a column
            has other types in the two.
    """

    metric = "auc"
    mode = "max"
    pairable = True
    margin = 0.002
    reference = Recipe(
        optimizer="adamw",
        batch_size=128,
        lr=4e-3,
        epochs=1,
        schedule="polynomial",
        weight_decay=0.0,
        warmup_fraction=0.1,
    )

    def __init__(
        self,
        data: str = "",
        embedding: int = 16,
        bottom: Sequence[int] = (64, 32),
        top: Sequence[int] = (128, 64),
        codes: Sequence[str] = (),
        ignored: Sequence[str] = (),
        table_size: int = 100_000,
        hashed: int = 16,
        subset: int | None = None,
    ) -> None:
        remedy = command("click_through", data or "FOLDER")
        need(bool(data), f"data = FOLDER is needed, with train.parquet and test.parquet; {remedy}")
        need(subset is None or subset > 0, f"subset = {subset} must be above 0.")
        for name, value in (("embedding", embedding), ("table_size", table_size), ("hashed", hashed)):
            need(value > 0, f"{name} = {value} must be above 0.")
        for name, widths in (("bottom", bottom), ("top", top)):
            need(all(width > 0 for width in widths), f"{name} = {widths} must be widths above 0.")
        self._train, self._test = (
            ParquetTable(f"{data.rstrip('/')}/{name}", remedy=remedy) for name in ("train", "test")
        )
        self._train.check_columns(["label", *codes, *ignored])
        for table in (self._train, self._test):
            _check_label(table)
        if set(CENSUS_COLUMNS) <= set(self._train.schema.names):
            codes, ignored = [*_CENSUS_CODES, *codes], [*_CENSUS_IGNORED, *ignored]
        self._features = Features(self._train, codes, ignored, table_size, hashed)
        self._features.check(self._test)
        self._embedding, self._bottom, self._top, self._subset = embedding, bottom, top, subset
        self._train_rows, self._validation_rows = train_and_validation(self._train.num_rows, subset)
        self.num_train_samples = len(self._train_rows)

    def build_model(self) -> nn.Module:
        """Embeddings and the brought-down numbers, the dot product of every pair, and a perceptron over them."""
        return DLRM(self._features.table_sizes, len(self._features.numbers), self._embedding, self._bottom, self._top)

    def train_data(self) -> TableData:
        """Nine tenths of the training table, at most all but 50,000 rows."""
        return self._data(self._arrays, self._train_rows)

    def validation_data(self) -> TableData:
        """The rows that are held out."""
        return self._ranked(self._arrays, self._validation_rows)

    def test_data(self) -> TableData:
        """The test table."""
        return self._ranked(self._mapped(self._test), some(Rows(self._test.num_rows), self._subset))

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Mean binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(model(batch["numbers"], batch["categories"]), batch["label"])

    def evaluate(self, model: nn.Module, data: TableData) -> dict[str, float]:
        """Area under the ROC curve, and mean binary cross-entropy."""
        from sklearn.metrics import roc_auc_score

        device = next(model.parameters()).device
        logits, labels, loss = [], [], 0.0
        for first in range(0, len(data), _EVALUATED_AT_ONCE):
            rows = data[np.arange(first, min(first + _EVALUATED_AT_ONCE, len(data)))]
            batch = {name: tensor.to(device) for name, tensor in rows.items()}
            logits.append(model(batch["numbers"], batch["categories"]).cpu())
            labels.append(rows["label"])
            loss += F.binary_cross_entropy_with_logits(logits[-1], labels[-1], reduction="sum").item()
        scores = torch.cat(logits).numpy()
        # Scores out of range cannot be ranked: the worst there is, which says that training diverged.
        auc = float(roc_auc_score(torch.cat(labels).numpy(), scores)) if np.isfinite(scores).all() else -np.inf
        return {"auc": auc, "loss": loss / len(data)}

    def _ranked(self, arrays: MappedArrays, rows: AnyRows) -> TableData:
        """Rows that the metric can rank: it needs both classes."""
        labels = arrays["label"][rows[np.arange(min(_LABELS_LOOKED_AT, len(rows)))]]
        one_class = len(rows) <= _LABELS_LOOKED_AT and labels.min() == labels.max()
        need(not one_class, f"all {len(rows)} rows held out for evaluation are of one class; there is nothing to rank.")
        return self._data(arrays, rows)

    def _data(self, arrays: MappedArrays, rows: AnyRows) -> TableData:
        return TableData(arrays, rows, *self._statistics)

    @cached_property
    def _arrays(self) -> MappedArrays:
        return self._mapped(self._train)

    def _mapped(self, table: ParquetTable) -> MappedArrays:
        return table.mapped(self._features.columns, self._features.converter(), self._features.key)

    @cached_property
    def _statistics(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the numbers over up to 100,000 training rows, spread over the table."""
        size = len(self._train_rows)
        looked_at = min(_ROWS_LOOKED_AT, size)
        rows = self._train_rows[np.arange(looked_at) * size // looked_at]  # tables are often sorted, as by time
        numbers = self._arrays["numbers"][rows].astype(np.float64)
        # What is constant here, but for rounding, need not be elsewhere: a deviation of 0 would blow that up.
        constant = np.ptp(numbers, 0) <= 1e-6 * np.abs(numbers).max(0)
        return numbers.mean(0), np.where(constant, 1.0, numbers.std(0))


def _check_label(table: ParquetTable) -> None:
    from pyarrow import types

    table.check_columns(["label"])
    kind = table.schema.field("label").type
    right = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    need(right, f"label in the table {table.location} holds {kind}, not 0 and 1; {table.remedy}")


class TableData:
    """Rows as a dict of `numbers`, float32, mean 0 and deviation 1, `categories`, int64, and `label`, float32."""

    def __init__(self, arrays: MappedArrays, rows: AnyRows, mean: Array, deviation: Array) -> None:
        self._arrays, self._rows = arrays, rows
        self._mean, self._deviation = mean.astype(np.float32), deviation.astype(np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, indices: Array) -> dict[str, torch.Tensor]:
        rows = self._rows[indices]
        batch = {
            "numbers": (self._arrays["numbers"][rows] - self._mean) / self._deviation,
            "categories": self._arrays["categories"][rows].astype(np.int64),
            "label": self._arrays["label"][rows],
        }
        return {name: torch.from_numpy(array) for name, array in batch.items()}


class DLRM(nn.Module):
    """Deep learning recommendation model.

    Args:
        table_sizes: rows of the embedding table of each categorical column.
        num_numbers: columns of numbers.
        embedding: length of an embedding.
        bottom: widths of the hidden layers over the numbers.
        top: widths of the hidden layers over the interactions.
    """

    def __init__(
        self, table_sizes: Sequence[int], num_numbers: int, embedding: int, bottom: Sequence[int], top: Sequence[int]
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, embedding) for size in table_sizes)
        for table in self.tables.parameters():
            nn.init.uniform_(table, -(embedding**-0.5), embedding**-0.5)
        self.bottom = _perceptron([num_numbers, *bottom, embedding])
        vectors = len(table_sizes) + 1
        self.top = _perceptron([embedding + vectors * (vectors - 1) // 2, *top, 1])
        self.register_buffer("_pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Logits, [samples], of numbers, [samples, columns], and rows of the tables, [samples, columns]."""
        below = self.bottom(numbers)
        looked_up = [table(rows) for table, rows in zip(self.tables, categories.unbind(1), strict=True)]
        vectors = torch.stack([below, *looked_up], 1)
        first, second = self.get_buffer("_pairs")
        products = (vectors @ vectors.transpose(1, 2))[:, first, second]
        logits: torch.Tensor = self.top(torch.cat([below, products], 1)).squeeze(1)
        return logits


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


if __name__ == "__main__":
    sys.exit(main("click_through", convert_tables, SOURCES))
