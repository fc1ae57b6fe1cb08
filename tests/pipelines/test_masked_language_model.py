"""Masks, splits by document, the two phases."""

import resource
import shutil

import generated
import numpy as np
import pytest
import torch
from pyarrow import parquet

from pipelines._text import CLS, MASK, SEP, SPECIALS, Corpus, MaskedSequences, split_of
from pipelines.masked_language_model import MaskedLanguageModel
from vrgd_ray import ConfigError, ParquetTable

SMALL = {"length": 16, "positions": 32, "vocabulary": 60, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(generated.documents(tmp_path_factory.mktemp("documents")))


def sequences(stream, length, vocabulary=1000):
    count = len(stream) // (length - 1)
    return MaskedSequences(np.asarray(stream, np.uint32), length, vocabulary, np.arange(count))


def test_fifteen_percent_are_guessed_of_them_80_10_10():
    data = sequences(np.full(21 * 1000, 500), 22)
    inputs, places, tokens = data.augmented(np.arange(1000), np.arange(1000).astype(np.uint64))
    assert data.guesses == places.shape[1] == 3
    assert (inputs[:, 0] == CLS).all()
    assert (tokens == 500).all()
    assert (places.sort(1).values.diff(dim=1) > 0).all(), "no place twice"
    assert sorted(set(places.flatten().tolist())) == list(range(1, 22))
    seen = inputs.gather(1, places)
    assert (seen == MASK).double().mean().item() == pytest.approx(0.8, abs=0.03)
    assert (seen == 500).double().mean().item() == pytest.approx(0.1, abs=0.03)
    other = seen[(seen != MASK) & (seen != 500)]
    assert other.min() >= len(SPECIALS)
    assert other.max() < 1000
    untouched = inputs.scatter(1, places, 500)[:, 1:]
    assert (untouched == 500).all()


def test_the_end_of_a_document_is_not_guessed():
    stream = np.tile([SEP, SEP, 7, 8, 9, 10, 11, 12, 13, 14], 100)
    _, _, tokens = sequences(stream, 11).augmented(np.arange(100), np.arange(100).astype(np.uint64))
    assert SEP not in tokens


def test_validation_is_masked_alike_each_time_and_training_anew(folder):
    pipeline = MaskedLanguageModel(folder, **SMALL)
    numbers = np.arange(4)
    for tensors in zip(pipeline.validation_data()[numbers], pipeline.validation_data()[numbers], strict=True):
        assert torch.equal(*tensors)
    data = pipeline.train_data()
    first, second = (data.augmented(numbers, numbers.astype(np.uint64) + shift) for shift in (0, 100))
    assert not torch.equal(first[0], second[0])


def test_documents_are_split_and_none_is_in_two(folder):
    corpus = Corpus(ParquetTable(f"{folder}/documents", remedy=""), 60)
    tokens = corpus.tokens()
    ends = {split: int((stream == SEP).sum()) for split, stream in tokens.items()}
    expected = [split_of(f"{number}.txt") for number in range(80)]
    assert ends == {split: expected.count(split) for split in ("train", "validation", "test")}
    first = generated_text(folder, expected.index("validation"))
    words = corpus.tokenizer.decode(tokens["validation"][:200].tolist(), skip_special_tokens=True)
    assert words.startswith(first[:100])


def generated_text(folder, number):
    (batch,) = ParquetTable(f"{folder}/documents", remedy="").batches(["text"])
    return batch.column("text")[number].as_py() if batch.num_rows > number else pytest.fail("too few")


def test_the_tokenizer_is_the_same_wherever_it_is_trained(folder, tmp_path, monkeypatch):
    made = []
    for cache in ("one", "two"):
        monkeypatch.setenv("VRGD_CACHE", str(tmp_path / cache))
        corpus = Corpus(ParquetTable(f"{folder}/documents", remedy=""), 60)
        made.append(corpus.tokenizer.to_str())
    assert made[0] == made[1]


@pytest.mark.parametrize("vocabulary", [7, 8, 12, 20, 30])
def test_a_vocabulary_has_at_most_as_many_entries_as_asked_for(folder, vocabulary):
    pipeline = MaskedLanguageModel(folder, **SMALL | {"vocabulary": vocabulary})
    tokenizer = pipeline._corpus.tokenizer
    assert [tokenizer.id_to_token(number) for number in range(5)] == SPECIALS
    assert tokenizer.get_vocab_size() in (vocabulary, vocabulary - 1)
    inputs, _, tokens = pipeline.train_data()[np.arange(20)]
    assert max(inputs.max(), tokens.max()) < tokenizer.get_vocab_size()


@pytest.mark.parametrize("missing", [None, ""])
def test_documents_without_names_are_refused(folder, tmp_path, missing):
    documents = parquet.read_table(f"{folder}/documents.parquet").to_pydict()
    generated.write(tmp_path, "documents", documents | {"name": [*documents["name"][:-1], missing]})
    with pytest.raises(ConfigError, match=r"documents without a name.*give each a name of its own"):
        _ = MaskedLanguageModel(str(tmp_path), **SMALL).num_train_samples


def test_a_full_disk_is_a_sentence_also_for_the_tokenizer(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("VRGD_CACHE", str(tmp_path / "full"))
    corpus = Corpus(ParquetTable(f"{folder}/documents", remedy=""), 60)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"full cannot be written .* set VRGD_CACHE to a folder that can"):
            _ = corpus.tokenizer
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_second_phase_goes_on_from_the_first_with_longer_sequences(folder, tmp_path):
    first = MaskedLanguageModel(folder, **SMALL)
    model = first.build_model()
    torch.save({"model": model.state_dict(), "step": 3}, tmp_path / "step.pt")
    second = MaskedLanguageModel(folder, **SMALL | {"length": 32}, start=str(tmp_path / "step.pt"))
    state = second.build_model().state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert second.train_data()[np.arange(3)][0].shape == (3, 32)


@pytest.fixture(scope="module")
def first_phase(folder, tmp_path_factory):
    """The state of a model of the first phase, in a file."""
    path = tmp_path_factory.mktemp("first") / "step.pt"
    torch.save({"model": MaskedLanguageModel(folder, **SMALL).build_model().state_dict()}, path)
    return str(path)


def test_a_start_whose_tokens_have_other_numbers_is_refused(folder, first_phase, tmp_path):
    documents = parquet.read_table(f"{folder}/documents.parquet").to_pydict()
    other = [text.replace("g", "h") for text in documents["text"]]  # as many entries of the vocabulary, but others
    generated.write(tmp_path, "documents", documents | {"text": other})
    pipeline = MaskedLanguageModel(str(tmp_path), **SMALL, start=first_phase)
    with pytest.raises(ConfigError, match=r"step\.pt' was trained with another tokenizer.*give the documents"):
        pipeline.build_model()


def test_a_start_of_the_same_documents_elsewhere_is_taken(folder, first_phase, tmp_path, monkeypatch):
    monkeypatch.setenv("VRGD_CACHE", str(tmp_path / "cache"))
    shutil.copytree(folder, tmp_path / "copy")
    MaskedLanguageModel(str(tmp_path / "copy"), **SMALL, start=first_phase).build_model()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": 64}, r"positions\.weight is of shape \[32, 128\] in it and of shape \[64, 128\] here"),
        ({"vocabulary": 30}, r"bias is of shape \[\d+\] in it and of shape \[30\] here"),
        ({"size": "small"}, r"step\.pt' is of another model: .*; give size, positions and vocabulary"),
    ],
)
def test_a_start_of_another_model_is_one_sentence(folder, first_phase, changes, message):
    with pytest.raises(ConfigError, match=message) as raised:
        MaskedLanguageModel(folder, **SMALL | changes, start=first_phase).build_model()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"weight": torch.zeros(3)}, "bias is absent in it and of shape"),
        ({"model": {"weight": 3}}, "cannot be read"),
        ([torch.zeros(3)], "cannot be read"),
    ],
)
def test_a_start_without_a_models_state_is_refused(folder, tmp_path, state, message):
    torch.save(state, tmp_path / "step.pt")
    with pytest.raises(ConfigError, match=message):
        MaskedLanguageModel(folder, **SMALL, start=str(tmp_path / "step.pt")).build_model()


def test_layers_begin_with_weights_of_their_own(folder):
    layers = MaskedLanguageModel(folder, **SMALL).build_model().layers
    assert not torch.equal(layers[0].linear1.weight, layers[1].linear1.weight)


def test_perplexity_and_accuracy_are_over_the_guesses(folder):
    pipeline = MaskedLanguageModel(folder, **SMALL, subset=20)
    torch.manual_seed(0)
    model, data = pipeline.build_model().eval(), pipeline.test_data()
    inputs, places, tokens = data[np.arange(len(data))]
    with torch.no_grad():
        logs = model(inputs, places).log_softmax(2)
        found = pipeline.evaluate(model, data)
    assert found["perplexity"] == pytest.approx((-logs.gather(2, tokens[..., None]).mean()).exp().item(), rel=1e-4)
    assert found["masked_accuracy"] == pytest.approx((logs.argmax(2) == tokens).double().mean().item())


def test_a_model_that_has_diverged_has_an_infinite_perplexity(folder):
    pipeline = MaskedLanguageModel(folder, **SMALL, subset=8)
    model = pipeline.build_model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e6)
        assert pipeline.evaluate(model, pipeline.test_data())["perplexity"] == np.inf


def test_a_start_that_is_no_checkpoint_is_named(folder, tmp_path):
    (tmp_path / "notes.pt").write_text("no weights")
    with pytest.raises(ConfigError, match=r"notes\.pt cannot be read"):
        MaskedLanguageModel(folder, **SMALL, start=str(tmp_path / "notes.pt")).build_model()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "data = FOLDER is needed.*python -m pipelines.masked_language_model prepare"),
        ({"size": "huge"}, "must be one of mini, small, base, large"),
        ({"length": 600}, "length = 600 must be at least 2 and at most positions = 512"),
        ({"vocabulary": 6}, "vocabulary = 6 must be at least 7"),
        ({"dropout": 1}, "dropout = 1"),
        ({"start": "gone.pt"}, "start = 'gone.pt' is no file"),
    ],
)
def test_bad_arguments_are_refused(folder, arguments, message):
    with pytest.raises(ConfigError, match=message):
        MaskedLanguageModel(**({"data": folder} | arguments if arguments else {}))


def test_a_corpus_too_small_and_a_missing_library_are_said(tmp_path, monkeypatch):
    generated.documents(tmp_path, count=2)
    with pytest.raises(ConfigError, match=r"the validation documents have 0 tokens.*add documents"):
        MaskedLanguageModel(str(tmp_path), **SMALL).validation_data()
    monkeypatch.setattr("pipelines.masked_language_model.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'vrgd-ray\[text\]'"):
        MaskedLanguageModel(str(tmp_path), **SMALL)
