"""Arrays in files: what is read is what was written, or a sentence."""

import pickle

import numpy as np
import pytest

from vrgd_ray import ConfigError, MappedArrays
from vrgd_ray.mapped import write_arrays

NAMES = ("clicks/day", "layout.json", "0", "..", "Ä", "a", "A", "long" * 100)


def test_names_that_no_file_may_have(tmp_path):
    write_arrays(tmp_path, [{name: np.full(2, place) for place, name in enumerate(NAMES)}] * 2)
    mapped = MappedArrays(tmp_path)
    assert list(mapped) == list(NAMES)
    for place, name in enumerate(NAMES):
        np.testing.assert_array_equal(mapped[name], [place] * 4)


@pytest.mark.parametrize(
    "array", [np.array([True, False]), np.array([1.5], np.float16), np.array(["ab", "c"]), np.empty((3, 0))]
)
def test_arrays_come_back_as_they_were(tmp_path, array):
    write_arrays(tmp_path, [{"x": array}])
    found = MappedArrays(tmp_path)["x"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_arrays_of_a_piece_may_differ_in_length(tmp_path):
    write_arrays(tmp_path, [{"train": np.ones(3), "test": np.ones(1)}] * 2)
    assert [len(array) for array in MappedArrays(tmp_path).values()] == [6, 2]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            [{"x": np.array(["ab", None], object)}],
            "x has the dtype object, which cannot be mapped from a file; make it",
        ),
        ([{"x": np.zeros(2, [("a", "i4"), ("b", "f8")])}], "x has the dtype .*, which cannot be mapped"),
        ([{"x": np.array(["2020-01-01"], "datetime64[D]")}], "x has the dtype datetime64.*, which cannot be mapped"),
        ([{"x": np.ones(2)}, {"x": np.ones(2, int)}], "x changes on the way"),
        ([{"x": np.ones(2)}, {"y": np.ones(2)}], "the arrays change on the way from x to y"),
        ([{"x": np.ones(2), "y": np.ones(2)}, {"x": np.ones(2)}], "the arrays change on the way from x, y to x"),
        ([], "there is nothing to map"),
        ([{}], "there is nothing to map"),
    ],
)
def test_pieces_that_cannot_be_mapped_are_refused(tmp_path, pieces, message):
    with pytest.raises(ConfigError, match=message):
        write_arrays(tmp_path, pieces)


def test_arrays_are_found_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = (tmp_path / "here").relative_to(tmp_path)
    write_arrays(folder, [{"x": np.arange(3)}])
    text = pickle.dumps(MappedArrays(folder))
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(text)["x"], [0, 1, 2])


@pytest.mark.parametrize("lost", ["layout.json", "0"])
def test_arrays_that_are_gone_are_said_to_be(tmp_path, lost):
    write_arrays(tmp_path, [{"x": np.arange(3)}])
    text = pickle.dumps(MappedArrays(tmp_path))
    (tmp_path / lost).unlink()
    with pytest.raises(ConfigError, match=r"cannot be mapped .* start again"):
        pickle.loads(text)
