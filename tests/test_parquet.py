"""Parquet tables as memory-mapped arrays: the right numbers, in bounded memory, or a sentence that says what to do."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vrgd_ray import ConfigError, MappedArrays, ParquetTable

REMEDY = "make it with: prepare"


def write(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, **options)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VRGD_CACHE", str(tmp_path / "cache"))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(200, dtype=np.uint8)), 2)
    columns = {"pair": lists, "number": np.arange(100) * 0.5, "text": [str(i) for i in range(100)]}
    write(tmp_path / "train.parquet", columns, row_group_size=7)
    return tmp_path


def table(location):
    return ParquetTable(str(location), remedy=REMEDY)


def test_columns_are_arrays_of_the_rows_in_order(folder):
    mapped = table(folder / "train").mapped(["pair", "number"])
    assert list(mapped) == ["pair", "number"]
    assert mapped["pair"].dtype == np.uint8
    np.testing.assert_array_equal(mapped["pair"], np.arange(200).reshape(100, 2))
    np.testing.assert_array_equal(mapped["number"][np.array([99, 0, 0])], [49.5, 0, 0])
    assert isinstance(mapped["pair"].base, np.memmap)
    assert not mapped["pair"].flags.writeable


def test_other_columns_are_never_read(folder):
    batches = list(table(folder / "train").batches(["number"]))
    assert sum(batch.num_rows for batch in batches) == 100
    assert all(batch.schema.names == ["number"] for batch in batches)


def test_a_folder_of_files_is_one_table_in_the_order_of_their_names(folder):
    for number in (2, 0, 1):
        write(folder / f"many/part_{number}.parquet", {"number": np.arange(5) + 10 * number})
    (folder / "many/_SUCCESS").touch()
    many = table(folder / "many")
    assert many.num_rows == 15
    np.testing.assert_array_equal(many.mapped(["number"])["number"][4:7], [4, 10, 11])


def test_a_uri_leads_to_the_same_table(folder):
    by_uri = table(f"file://{folder}/train")
    np.testing.assert_array_equal(by_uri.mapped(["number"])["number"], np.arange(100) * 0.5)


def test_arrays_are_made_once_and_anew_when_the_file_has_changed(folder):
    calls = []

    def convert(batch):
        calls.append(len(batch))
        return {"double": 2 * batch.column("number").to_numpy()}

    for _ in range(2):
        mapped = table(folder / "train").mapped(["number"], convert, "double")
        np.testing.assert_array_equal(mapped["double"], np.arange(100))
    assert sum(calls) == 100
    write(folder / "train.parquet", {"number": np.ones(4)})
    np.testing.assert_array_equal(table(folder / "train").mapped(["number"], convert, "double")["double"], [2] * 4)
    assert "triple" in table(folder / "train").mapped(["number"], lambda b: {"triple": np.ones(1)}, "triple")


def test_arrays_of_one_conversion_are_not_taken_for_those_of_another(folder):
    plain = table(folder / "train").mapped(["number"])

    def convert(batch):
        return {"number": batch.column("number").to_numpy() / 255}

    with pytest.raises(ConfigError, match="convert needs a key that names all its arrays depend on"):
        table(folder / "train").mapped(["number"], convert)
    scaled = table(folder / "train").mapped(["number"], convert, "scaled")
    np.testing.assert_array_equal(scaled["number"], plain["number"] / 255)
    again = table(folder / "train").mapped(["number"], key="scaled")
    np.testing.assert_array_equal(again["number"], plain["number"])


@pytest.mark.parametrize(
    "damage", [lambda file: file.unlink(), lambda file: os.truncate(file, file.stat().st_size - 1)]
)
def test_what_a_cleaner_took_from_the_cache_is_made_anew(folder, damage):
    whole = table(folder / "train").mapped(["pair", "number"])
    files = [file for file in whole.folder.iterdir() if file.stat().st_size]
    assert len(files) == 4
    for file in files:
        damage(file)
        anew = table(folder / "train").mapped(["pair", "number"])
        assert anew.folder == whole.folder
        np.testing.assert_array_equal(anew["number"], np.arange(100) * 0.5)
    np.testing.assert_array_equal(whole["number"], np.arange(100) * 0.5)  # still held by who mapped it before


def test_a_derived_folder_that_lost_a_file_in_a_folder_is_made_anew(folder):
    def make(unfinished):
        (unfinished / "inner").mkdir()
        (unfinished / "inner/text").write_text("made")

    for _ in range(2):
        derived = table(folder / "train").derived("nested", make)
        assert (derived / "inner/text").read_text() == "made"
        (derived / "inner/text").unlink()
        (derived / "inner").rmdir()
    assert len(list((folder / "cache").iterdir())) == 1


def test_arrays_travel_as_the_name_of_their_folder(folder):
    mapped = table(folder / "train").mapped(["pair"])
    text = pickle.dumps(mapped)
    assert len(text) < 500
    np.testing.assert_array_equal(pickle.loads(text)["pair"], mapped["pair"])
    assert isinstance(pickle.loads(text), MappedArrays)


def make_slowly(location, barrier):
    def convert(batch):
        barrier.wait(60)
        return {"number": batch.column("number").to_numpy()}

    assert table(location).mapped(["number"], convert, "slow")["number"].sum() == 2475


def test_processes_that_make_the_same_arrays_do_not_disturb_each_other(folder):
    context = get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=make_slowly, args=(folder / "train", barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list((folder / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda f: table(f / "gone"), r"neither .*gone.parquet nor a folder .*gone with Parquet files; make it with"),
        (lambda f: table("nonsense://x/train"), r"nonsense://x/train cannot be read"),
        (lambda f: table(f / "damaged"), r"damaged cannot be read \(.*\); make it with"),
        (lambda f: table(f / "empty"), r"empty has no rows; make it with"),
        (lambda f: table(f / "train").mapped(["numbr"]), r"lacks numbr \(it has pair, number, text\); make it with"),
        (lambda f: table(f / "train").mapped(["text"]), r"text in the table .* holds string, not numbers"),
        (lambda f: table(f / "holes").mapped(["number"]), r"number in the table .* has empty fields"),
        (lambda f: list(table(f / "cut").batches(["number"])), r"cut cannot be read"),
        (lambda f: table(f / "both"), r"both .*both.parquet and a folder .*both with Parquet files; keep the one"),
        (lambda f: table(f"file://{f}/both"), r"both file://.*both.parquet and a folder file://.*both with"),
        (lambda f: table(f / "train").mapped([]), r"no columns of the table .*train are asked for"),
        (lambda f: list(table(f / "train").batches([])), r"no columns of the table .*train are asked for"),
        (lambda f: table(f / "twins").mapped(["x"]), r"twins has more than one column x; make it with"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_remedy(folder, act, message):
    (folder / "damaged.parquet").write_text("no Parquet")
    write(folder / "empty.parquet", {"number": pa.array([], pa.int64())})
    write(folder / "holes.parquet", {"number": [1, None, 3]})
    write(folder / "cut.parquet", {"number": np.random.default_rng(0).random(10_000)}, compression=None)
    write(folder / "both.parquet", {"number": [1]})
    write(folder / "both/part.parquet", {"number": [1]})
    parquet.write_table(pa.table([[1], [2]], names=["x", "x"]), folder / "twins.parquet")
    data = bytearray((folder / "cut.parquet").read_bytes())
    data[4:60] = bytes(56)  # the footer is whole, the first page is not
    (folder / "cut.parquet").write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        act(folder)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, r"b\.parquet lacks number \(it has text\); make it with: prepare"),
        ({"number": ["a"]}, r"number in .*b\.parquet holds string, in .*a\.parquet double"),
    ],
)
def test_a_file_that_differs_from_the_others_is_named(tmp_path, columns, message):
    write(tmp_path / "train/a.parquet", {"number": [1.0]})
    write(tmp_path / "train/b.parquet", columns)
    with pytest.raises(ConfigError, match=message):
        table(tmp_path / "train").check_columns(["number"])


def test_a_cache_that_cannot_be_written_is_named(folder, monkeypatch):
    (folder / "file").touch()
    monkeypatch.setenv("VRGD_CACHE", str(folder / "file"))
    with pytest.raises(ConfigError, match="set VRGD_CACHE to a folder that can"):
        table(folder / "train").mapped(["number"])


def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))


MAP = """
import sys
from vrgd_ray import ConfigError, ParquetTable
try:
    ParquetTable(sys.argv[1], remedy="").mapped(["number"])
except ConfigError as error:
    print(error)
"""


def test_a_full_disk_is_one_sentence_and_leaves_nothing(folder):
    write(folder / "big.parquet", {"number": np.arange(1000.0)})
    command = [sys.executable, "-c", MAP, str(folder / "big")]
    said = subprocess.check_output(command, text=True, env=os.environ, preexec_fn=limit_file_size)
    assert f"the cache {folder / 'cache'} cannot be written (" in said
    assert "make room there, or set VRGD_CACHE to a folder that can" in said
    assert len(said.splitlines()) == 1
    assert list((folder / "cache").iterdir()) == []


def test_a_cache_without_a_home_is_a_sentence(folder, monkeypatch):
    monkeypatch.setenv("VRGD_CACHE", "~no_such_user/cache")
    with pytest.raises(ConfigError, match="home folder is not known; set VRGD_CACHE to a folder that can be written"):
        table(folder / "train").mapped(["number"])


def test_errors_of_what_makes_the_arrays_are_not_taken_for_the_cache(folder):
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        table(folder / "train").mapped(["number"], lambda _: (folder / "elsewhere").read_bytes(), "elsewhere")


def test_a_cache_relative_to_the_folder_is_found_from_another(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("VRGD_CACHE", "relative")
    text = pickle.dumps(table(folder / "train").mapped(["number"]))
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(text)["number"], np.arange(100) * 0.5)


MEASURE = """
import sys, tracemalloc
import numpy as np, pyarrow as pa
from vrgd_ray import ParquetTable
tracemalloc.start()
image = ParquetTable(sys.argv[1], remedy="").mapped(["image"])["image"]
random = np.random.default_rng(0)
total = sum(int(image[random.integers(0, len(image), 64)].sum()) for _ in range(200))
print(image.nbytes, tracemalloc.get_traced_memory()[1], pa.default_memory_pool().max_memory())
"""


def test_memory_does_not_grow_with_the_table(folder):
    rows, width = 1024, 4096
    pixels = np.random.default_rng(0).integers(0, 4, rows * width).astype(np.uint8)
    piece = pa.table({"image": pa.FixedSizeListArray.from_arrays(pa.array(pixels), width)})
    peaks = {}
    for pieces in (8, 48):  # 32 and 192 MiB
        with parquet.ParquetWriter(folder / f"big{pieces}.parquet", piece.schema) as writer:
            for _ in range(pieces):
                writer.write_table(piece, row_group_size=256)
        command = [sys.executable, "-c", MEASURE, str(folder / f"big{pieces}")]
        size, *peaks[pieces] = map(int, subprocess.check_output(command, text=True, env=os.environ).split())
        assert size == pieces * rows * width
    assert all(large < small + 4 * 2**20 for small, large in zip(peaks[8], peaks[48], strict=True)), peaks
    assert peaks[48][1] < 32 * 2**20, "Arrow's own memory"
