"""Pretraining of a BERT encoder on documents in a Parquet file; needs the extra `text` (the tokenizers library).

python -m pipelines.masked_language_model prepare --source docs --output data/docs
python -m vrgd_ray.tune --pipeline pipelines.masked_language_model --pipeline-args data=data/docs
"""

from __future__ import annotations

import sys
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pipelines._prepare import command, main, need, reading
from pipelines._text import SOURCES, SPECIALS, Corpus, MaskedSequences, convert_texts
from vrgd_ray import MappedArrays, ParquetTable, Recipe

Array: TypeAlias = np.ndarray[Any, Any]
_SIZES = {"mini": (2, 128, 2), "small": (4, 512, 8), "base": (12, 768, 12), "large": (24, 1024, 16)}
_SUBSET_SEED = 1810
_EVALUATED_AT_ONCE = 64


class MaskedLanguageModel:
    """Guessing masked tokens from both sides, as BERT is pretrained (arXiv 1810.04805, without the next sentence).

    Documents are split, not sequences: no document is in two splits. Masks change from epoch to epoch, by keys. The
    tokenizer is trained on the training documents, once, and cached. The margin, 2 % of the perplexity, is 0.02 in the
    loss.

    The two phases of BERT are two runs, each with a batch size of its own: first length=128, then length=512 with
    `start` at a checkpoint of the first; positions are learned up to `positions` in both. The documents are the same in
    both, or else the tokenizer is another one: the model keeps a digest of it, and a checkpoint of another is refused.

    Args:
        data: folder or URI with the table `documents`: `name` and `text`.
        size: "mini" (2 layers of width 128, for CPUs), "small" (4 of 512), "base" (12 of 768), "large" (24 of 1024).
        length: tokens of a sequence.
        positions: longest sequence the model could take.
        vocabulary: most entries of the tokenizer's vocabulary; letters that find no room in it are unknown.
        dropout: share of activations dropped in training, 0..1.
        start: a checkpoint, or a file with the model's state, to begin with; "" for a fresh model.
        subset: training sequences to keep, and at most that many for validation and test each.

    Raises:
        ConfigError: the table, a column or the tokenizers library is missing, the corpus is too small to be split, or
            `start` is of another model or tokenizer.
    """

    metric = "perplexity"
    mode = "min"
    pairable = True
    margin = "2%"
    reference = Recipe(
        optimizer="adamw", batch_size=32, lr=2e-3, epochs=3, schedule="linear", weight_decay=0.01, warmup_fraction=0.1
    )

    def __init__(
        self,
        data: str = "",
        size: str = "mini",
        length: int = 128,
        positions: int = 512,
        vocabulary: int = 8192,
        dropout: float = 0.1,
        start: str = "",
        subset: int | None = None,
    ) -> None:
        remedy = command("masked_language_model", data or "FOLDER")
        need(bool(data), f"data = FOLDER is needed, with documents.parquet; {remedy}")
        need(size in _SIZES, f"size = {size!r} must be one of {', '.join(_SIZES)}.")
        need(2 <= length <= positions, f"length = {length} must be at least 2 and at most positions = {positions}.")
        least = len(SPECIALS) + 2  # one letter, at the beginning of a word and inside
        need(vocabulary >= least, f"vocabulary = {vocabulary} must be at least {least}.")
        need(0 <= dropout < 1, f"dropout = {dropout} must be at least 0 and below 1.")
        need(subset is None or subset > 0, f"subset = {subset} must be above 0.")
        need(not start or Path(start).is_file(), f"start = {start!r} is no file.")
        need(find_spec("tokenizers") is not None, "the tokenizers library is missing: pip install 'vrgd-ray[text]'.")
        self._corpus = Corpus(ParquetTable(f"{data.rstrip('/')}/documents", remedy=remedy), vocabulary)
        self._size, self._length, self._positions = size, length, positions
        self._dropout, self._start, self._subset = dropout, start, subset

    @cached_property
    def num_train_samples(self) -> int:
        """Sequences of the training documents; the corpus is read and tokenized for this, the first time."""
        return len(self.train_data())

    def build_model(self) -> nn.Module:
        """The encoder, fresh or from `start`."""
        layers, width, heads = _SIZES[self._size]
        entries = self._corpus.tokenizer.get_vocab_size()
        model = Encoder(entries, self._positions, layers, width, heads, self._dropout)
        model.register_buffer("tokenizer", torch.from_numpy(self._corpus.digest()))
        if self._start:
            model.load_state_dict(self._state(model.state_dict()))
        return model

    def _state(self, fresh: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What `start` holds, if it fits a fresh model."""
        with reading(Path(self._start)):
            loaded: dict[str, Any] = torch.load(self._start, map_location="cpu", weights_only=True)
            state = dict(loaded.get("model", loaded))
            found, shapes = ({name: f"of shape {[*value.shape]}" for name, value in s.items()} for s in (state, fresh))
        for name in {**shapes, **found}:
            there, here = found.get(name, "absent"), shapes.get(name, "absent")
            need(
                there == here,
                f"start = {self._start!r} is of another model: {name} is {there} in it and {here} here; give size, "
                "positions and vocabulary as in the run that made it.",
            )
        need(
            torch.equal(state["tokenizer"], fresh["tokenizer"]),
            f"start = {self._start!r} was trained with another tokenizer, in which the same numbers are other tokens; "
            "give the documents and the vocabulary of the run that made it.",
        )
        return state

    def train_data(self) -> MaskedSequences:
        """Sequences of nine tenths of the documents, masked anew in every epoch."""
        return self._sequences("train")

    def validation_data(self) -> MaskedSequences:
        """Sequences of a twentieth of the documents, always masked alike."""
        return self._sequences("validation")

    def test_data(self) -> MaskedSequences:
        """Sequences of another twentieth, always masked alike."""
        return self._sequences("test")

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Mean cross-entropy of the tokens to guess."""
        inputs, places, tokens = batch
        return F.cross_entropy(model(inputs, places).flatten(0, 1), tokens.flatten())

    def evaluate(self, model: nn.Module, data: MaskedSequences) -> dict[str, float]:
        """Perplexity, exp of the mean cross-entropy, and accuracy over the tokens to guess."""
        device = next(model.parameters()).device
        loss, correct, count = 0.0, 0, 0
        for first in range(0, len(data), _EVALUATED_AT_ONCE):
            batch = data[np.arange(first, min(first + _EVALUATED_AT_ONCE, len(data)))]
            inputs, places, tokens = (tensor.to(device) for tensor in batch)
            logits = model(inputs, places).flatten(0, 1)
            loss += F.cross_entropy(logits, tokens.flatten(), reduction="sum").item()
            correct += int((logits.argmax(1) == tokens.flatten()).sum())
            count += tokens.numel()
        mean = torch.tensor(loss / count, dtype=torch.float64)  # whose exp is infinite where it is too large, no error
        return {"perplexity": mean.exp().item(), "masked_accuracy": correct / count, "loss": mean.item()}

    @cached_property
    def _tokens(self) -> MappedArrays:
        return self._corpus.tokens()

    def _sequences(self, split: str) -> MaskedSequences:
        stream = self._tokens[split]
        count = len(stream) // (self._length - 1)
        need(
            count > 0,
            f"the {split} documents have {len(stream)} tokens, less than length = {self._length}; add documents, "
            "each with a name of its own.",
        )
        numbers = np.arange(count)
        if self._subset is not None and self._subset < count:
            numbers = np.sort(np.random.default_rng(_SUBSET_SEED).choice(count, self._subset, replace=False))
        return MaskedSequences(stream, self._length, self._corpus.tokenizer.get_vocab_size(), numbers)


class Encoder(nn.Module):
    """BERT's encoder; what is guessed is compared with the embeddings of the tokens themselves.

    Args:
        entries: size of the vocabulary.
        positions: longest sequence.
        layers: number of layers.
        width: length of a token's vector.
        heads: attention heads of a layer.
        dropout: share of activations dropped, 0..1.
    """

    def __init__(self, entries: int, positions: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(entries, width)
        self.positions = nn.Embedding(positions, width)
        self.prepare = nn.Sequential(nn.LayerNorm(width), nn.Dropout(dropout))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True)
                for _ in range(layers)
            )
        )
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(entries))
        self.apply(_initialise)

    def forward(self, inputs: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Logits of every token, [sequences, guesses, entries], at the places, [sequences, guesses]."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.layers(self.prepare(self.tokens(inputs) + self.positions(positions)))
        chosen = hidden.gather(1, places.unsqueeze(2).expand(-1, -1, hidden.shape[2]))
        return F.linear(self.transform(chosen), self.tokens.weight, self.bias)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.MultiheadAttention):
        nn.init.normal_(module.in_proj_weight, std=0.02)
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


if __name__ == "__main__":
    sys.exit(main("masked_language_model", convert_texts, SOURCES))
