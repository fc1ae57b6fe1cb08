"""A corpus of documents as streams of tokens, split by document, and the masking of sequences by keys."""

from __future__ import annotations

import codecs
import hashlib
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from pipelines._prepare import need, write_parquet
from vrgd_ray import MappedArrays, ParquetTable, keyed_uniform

Array: TypeAlias = np.ndarray[Any, Any]
SOURCES = "The folder holds text files (.txt, .md, .rst), also in folders of it; each is a document."
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNKNOWN, CLS, SEP, MASK = range(1, 5)
# Those of UTF-32 first: the little-endian one begins as that of UTF-16 does.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SHARES = 20
_SPLITS = {0: "validation", 1: "test"}
_WRITTEN_AT_ONCE = 256
_MOST_LETTERS = 1000


def convert_texts(source: Path, output: Path) -> Mapping[str, int]:
    """documents.parquet from the text files of a folder, in the order of their names."""
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in (".txt", ".md", ".rst") and p.is_file())
    need(bool(files), f"{source} holds no text files. {SOURCES}")
    return {"documents.parquet": write_parquet(output / "documents.parquet", _documents(source, files))}


def _documents(source: Path, files: list[Path]) -> Iterator[Any]:
    import pyarrow

    for first in range(0, len(files), _WRITTEN_AT_ONCE):
        some = files[first : first + _WRITTEN_AT_ONCE]
        documents = {_name(path.relative_to(source)): _text(path) for path in some}
        kept = {name: text for name, text in documents.items() if text.strip()}
        yield pyarrow.table({"name": [*kept], "text": [*kept.values()]}, schema=_schema())


def _schema() -> Any:
    import pyarrow

    return pyarrow.schema({"name": pyarrow.string(), "text": pyarrow.string()})


def _name(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", errors="replace")


def _text(path: Path) -> str:
    """UTF-8, or UTF-16 or 32 that says so in its first bytes; what is not is replaced, which is said."""
    content = path.read_bytes()
    coding = next((coding for mark, coding in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(coding)
    except UnicodeDecodeError:
        print(f"{_name(path)} is not all {coding.upper()}; what could not be read is \ufffd.", file=sys.stderr)
        return content.decode(coding, errors="replace")


def split_of(name: str) -> str:
    """Of 20 documents, one is for validation and one for test, by a hash of the name: adding documents moves none."""
    return _SPLITS.get(zlib.crc32(name.encode()) % _SHARES, "train")


class Corpus:
    """The table `documents` of a folder, `name` and `text`, and a WordPiece tokenizer trained on its training part.

    Args:
        table: the documents.
        vocabulary: most entries of the tokenizer's vocabulary.
    """

    def __init__(self, table: ParquetTable, vocabulary: int) -> None:
        import pyarrow

        self._table, self._vocabulary = table, vocabulary
        table.check_columns(["name", "text"])
        for name in ("name", "text"):
            kind = table.schema.field(name).type
            right = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
            need(right, f"{name} in the table {table.location} holds {kind}, not text; {table.remedy}")

    @cached_property
    def tokenizer(self) -> Any:
        """A `tokenizers.Tokenizer`, trained once and kept in the cache."""
        from tokenizers import Tokenizer

        folder = self._table.derived(f"wordpiece 3 {self._vocabulary}", self._train_tokenizer)
        return Tokenizer.from_file(str(folder / "tokenizer.json"))

    def digest(self) -> Array:
        """32 bytes, uint8, that are others for a tokenizer that numbers any token otherwise."""
        numbered = sorted(self.tokenizer.get_vocab().items())
        return np.frombuffer(bytearray(hashlib.sha256(repr(numbered).encode()).digest()), np.uint8)

    def _train_tokenizer(self, folder: Path) -> None:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        letters = self._letters(tokenizer.normalizer)
        # The trainer numbers the letters inside words in the order of a hash table, another in each process, and ties
        # between merges go by these numbers. Named beforehand, they are numbered alike on every machine.
        trainer = trainers.WordPieceTrainer(
            vocab_size=self._vocabulary,
            special_tokens=[*SPECIALS, *(f"##{letter}" for letter in letters)],
            initial_alphabet=letters,
            limit_alphabet=len(letters),
            show_progress=False,
        )
        tokenizer.train_from_iterator(self._training_texts(), trainer)
        entries = tokenizer.get_vocab()
        made = Tokenizer(models.WordPiece(entries, unk_token="[UNK]"))  # in which text cannot spell a special token
        made.normalizer, made.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
        made.decoder = tokenizer.decoder
        text = made.to_str(pretty=True)  # its own save() does not say that a disk is full in a way that can be told
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")

    def _letters(self, normalizer: Any) -> list[str]:
        """The most frequent letters and signs of the training documents, in the order of their numbers."""
        counts: Counter[str] = Counter()
        for text in self._training_texts():
            counts.update(normalizer.normalize_str(text))
        for blank in [letter for letter in counts if letter.isspace()]:
            del counts[blank]
        return sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[: self._most_letters])

    @property
    def _most_letters(self) -> int:
        """Letters that have room, each at the beginning of a word and inside words."""
        return min(_MOST_LETTERS, (self._vocabulary - len(SPECIALS)) // 2)

    def _training_texts(self) -> Iterator[str]:
        for batch in self._table.batches(["name", "text"]):
            for name, text in zip(*self._named(batch), strict=True):
                if split_of(name) == "train":
                    yield text

    def _named(self, batch: Any) -> list[list[str]]:
        """Names and texts of some documents; a missing text is empty."""
        names, texts = (column.fill_null("").to_pylist() for column in batch)
        need(
            all(names),
            f"the table {self._table.location} has documents without a name, and names decide which are for training, "
            "for validation and for test; give each a name of its own.",
        )
        return [names, texts]

    def tokens(self) -> MappedArrays:
        """The documents of each split one after the other, each ended by [SEP]; uint32."""
        return self._table.mapped(["name", "text"], self._encode, f"tokens 3 {self._vocabulary}")

    def _encode(self, batch: Any) -> Mapping[str, Array]:
        names, texts = self._named(batch)
        encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        streams: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
        for name, document in zip(names, encoded, strict=True):
            streams[split_of(name)] += [*document.ids, SEP]
        return {split: np.asarray(ids, np.uint32) for split, ids in streams.items()}


class MaskedSequences:
    """Sequences of [CLS] and `length` - 1 tokens of the stream, 15 % of which are to be guessed.

    Of these, 80 % are replaced by [MASK], 10 % by any token, 10 % left as they are (arXiv 1810.04805, section 3.1).
    Every sequence has as many, so that the mean over tokens is the mean over sequences. Which, the key decides; without
    keys, as in evaluation, the number of the sequence does. A batch is the inputs, int64 of shape [sequences, length],
    the places to guess, [sequences, guesses], and the tokens there.

    Args:
        stream: tokens; what is left beyond the last whole sequence is not used.
        length: tokens of a sequence, [CLS] included.
        vocabulary: entries of the tokenizer's vocabulary.
        numbers: numbers of the sequences to use.
    """

    def __init__(self, stream: Array, length: int, vocabulary: int, numbers: Array) -> None:
        whole = len(stream) // (length - 1)
        self._sequences = stream[: whole * (length - 1)].reshape(whole, length - 1)
        self._vocabulary, self._numbers = vocabulary, numbers
        self.guesses = max(1, round(0.15 * (length - 1)))

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, indices: Array) -> tuple[torch.Tensor, ...]:
        return self.augmented(indices, np.asarray(indices).astype(np.uint64))

    def augmented(self, indices: Array, keys: Array) -> tuple[torch.Tensor, ...]:
        """The sequences, each masked by its key alone."""
        inputs = self._sequences[self._numbers[indices]].astype(np.int64)
        order, action, token = np.split(keyed_uniform(keys, 3 * inputs.shape[1]), 3, axis=1)
        order[inputs == SEP] += 1.0  # guessed only if there is nothing else
        places = np.sort(np.argsort(order, axis=1, kind="stable")[:, : self.guesses], axis=1)
        original = np.take_along_axis(inputs, places, 1)
        action, token = (np.take_along_axis(draws, places, 1) for draws in (action, token))
        random = len(SPECIALS) + (token * (self._vocabulary - len(SPECIALS))).astype(np.int64)
        seen = np.select([action < 0.8, action < 0.9], [np.full_like(original, MASK), random], original)
        np.put_along_axis(inputs, places, seen, 1)
        inputs = np.pad(inputs, [(0, 0), (1, 0)], constant_values=CLS)
        return tuple(torch.from_numpy(array) for array in (inputs, places + 1, original))
