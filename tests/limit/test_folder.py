"""Where a search keeps what: names, the ledger's place, and coming back to it from elsewhere."""

import pytest
from simulation import plan

from vrgd_ray.config import ConfigError
from vrgd_ray.limit.folder import RunFolder


def choose(output, *, name="mine", resume=False, storage=None):
    return RunFolder.choose(output, name, "digits", resume=resume, storage=storage)


def begin(output, **options):
    folder = choose(output, **options)
    with folder.claim():
        folder.begin(plan())
    return folder


def test_by_default_everything_is_in_the_runs_folder(tmp_path):
    folder = begin(tmp_path)
    assert sorted(path.name for path in folder.path.iterdir()) == ["ledger", "storage.txt"]
    assert folder.storage == str(tmp_path / "mine" / "ray")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_with_a_storage_the_ledger_is_there(scheme, tmp_path):
    storage = f"{scheme}{tmp_path}/storage"
    folder = begin(tmp_path / "runs", storage=storage)
    assert len(list((tmp_path / "storage" / "mine" / "ledger").iterdir())) == 1
    assert folder.storage == f"{storage}/mine"
    assert choose(tmp_path / "runs", resume=True).ledger.search_id == folder.ledger.search_id


def test_resumed_on_another_machine_with_the_same_storage_and_name(tmp_path):
    first = begin(tmp_path / "here", storage=str(tmp_path / "storage"))
    second = choose(tmp_path / "there", resume=True, storage=str(tmp_path / "storage"))
    assert second.ledger.search_id == first.ledger.search_id
    with pytest.raises(ConfigError, match="nothing to resume"):
        choose(tmp_path / "there", resume=True)
    with pytest.raises(ConfigError, match="exists; choose another --name"):
        choose(tmp_path / "there", storage=str(tmp_path / "storage"))


def test_resumed_in_the_same_folder_the_storage_need_not_be_named_and_must_not_differ(tmp_path):
    first = begin(tmp_path / "runs", storage=str(tmp_path / "storage"))
    assert choose(tmp_path / "runs", resume=True).ledger.search_id == first.ledger.search_id
    with pytest.raises(ConfigError, match="leave --storage out"):
        choose(tmp_path / "runs", resume=True, storage=str(tmp_path / "elsewhere"))
    begin(tmp_path / "runs", name="plain")
    with pytest.raises(ConfigError, match="leave --storage out"):
        choose(tmp_path / "runs", name="plain", resume=True, storage=str(tmp_path / "storage"))


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write to .*file/mine: Not a directory.*--output"):
        begin(tmp_path / "file")


def test_two_searches_with_one_name_at_once_are_refused_wherever_they_write(tmp_path):
    storage = str(tmp_path / "storage")
    with choose(tmp_path / "here", storage=storage).claim():
        for output in (tmp_path / "here", tmp_path / "there"):
            other = RunFolder(output / "mine", resume=True, base=storage)
            with pytest.raises(ConfigError, match="another run is under way"), other.claim():
                pass
    assert not (tmp_path / "here").joinpath("mine").exists()


def test_names_are_numbered_past_those_in_the_storage(tmp_path):
    storage = str(tmp_path / "storage")
    begin(tmp_path / "here", name=None, storage=storage)
    assert choose(tmp_path / "there", name=None, storage=storage).path.name == "digits-2"
    assert choose(tmp_path / "there", name=None, resume=True, storage=storage).path.name == "digits"
