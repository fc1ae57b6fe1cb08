"""Loading a pipeline by name, and what is said of one that breaks the protocol."""

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import workloads

from vrgd_ray import ConfigError, Pipeline
from vrgd_ray.pipeline import PipelineSource, available_pipelines, check_members, load_pipeline

ONE_CLASS = """
    from workloads import Blobs as Imported

    class Mine(Imported):
        def __init__(self, size=30, *, noise: float = 1.0):
            super().__init__(num_train_samples=size)
            self.noise = noise

    class Helper:
        pass
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into a fresh working directory; its name is unique, so no other test has imported it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text):
        name = f"module_{os.path.basename(tmp_path).replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    return write


def test_a_module_with_one_pipeline_is_enough():
    assert type(load_pipeline("pipelines.linear_regression")).__name__ == "LinearRegression"


def test_a_class_is_chosen_by_name():
    assert type(load_pipeline("workloads:NormedBlobs")) is workloads.NormedBlobs


def test_a_function_that_returns_a_pipeline_will_do(module):
    name = module("from workloads import Blobs\ndef small(size=12):\n    return Blobs(size)\n")
    assert load_pipeline(f"{name}:small").num_train_samples == 12
    assert load_pipeline(f"{name}:small", {"size": 15}).num_train_samples == 15


def test_a_module_in_the_working_directory_is_found_and_its_imports_are_not_taken_for_pipelines(module):
    assert load_pipeline(module(ONE_CLASS)).num_train_samples == 30


def test_arguments_reach_the_constructor(module):
    pipeline = load_pipeline(module(ONE_CLASS), {"size": 60, "noise": 0.5})
    assert (pipeline.num_train_samples, pipeline.noise) == (60, 0.5)


def test_a_constructor_with_open_arguments_takes_any_and_one_with_none_says_so(module):
    name = module(
        """
        from workloads import Blobs

        class Open(Blobs):
            def __init__(self, **options):
                super().__init__()
                self.options = options

        class Closed(Blobs):
            def __init__(self):
                super().__init__()
        """
    )
    assert load_pipeline(f"{name}:Open", {"anything": 1}).options == {"anything": 1}
    with pytest.raises(ConfigError, match="unknown pipeline argument 'anything': it takes none"):
        load_pipeline(f"{name}:Closed", {"anything": 1})


def test_a_loaded_pipeline_is_an_instance_of_the_protocol():
    assert isinstance(load_pipeline("workloads:Blobs"), Pipeline)
    assert not isinstance(workloads.Broken(without="evaluate"), Pipeline)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipelines.digit", "no pipeline module 'pipelines.digit': did you mean 'pipelines.digits'"),
        ("nowhere.at_all", "no pipeline module 'nowhere.at_all': .*valid: .*pipelines.digits"),
        ("pipelines/digits.py", "'pipelines/digits.py' is no module name; write package.module"),
        ("", "'' is no module name"),
        (".digits", "'.digits' is no module name"),
        ("workloads", "defines several pipelines; name one, as workloads:Blobs"),
        ("workloads:Blob", "workloads has no 'Blob': did you mean 'Blobs'"),
        ("workloads:CENTRES", "workloads:CENTRES must be a class, or a function that returns a pipeline"),
        ("vrgd_ray.config", "module 'vrgd_ray.config' defines no pipeline: no class in it has build_model"),
    ],
)
def test_a_wrong_name_is_refused_with_what_would_do(name, message):
    with pytest.raises(ConfigError, match=message):
        load_pipeline(name)


def test_a_missing_dependency_is_not_mistaken_for_a_missing_pipeline(module):
    name = module("import package_nobody_has\n")
    with pytest.raises(ConfigError, match=f"pipeline module '{name}' needs the package 'package_nobody_has'"):
        load_pipeline(name)


def test_an_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown pipeline argument 'drop_out': did you mean 'dropout'"):
        load_pipeline("workloads:Blobs", {"drop_out": 0.1})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise FileNotFoundError('images.npz is not there')", "cannot be built: images.npz is not there"),
        ("int([])", "cannot be built: int"),
        ("from vrgd_ray import ConfigError; raise ConfigError('say it plainly')", "^say it plainly$"),
    ],
)
def test_a_constructor_that_fails_is_reported_in_one_sentence(module, body, message):
    name = module(f"from workloads import Blobs\nclass Failing(Blobs):\n    def __init__(self):\n        {body}\n")
    with pytest.raises(ConfigError, match=message):
        load_pipeline(name)


METHODS = ["build_model", "train_data", "validation_data", "test_data", "loss", "evaluate"]
VALUES = ["metric", "mode", "num_train_samples", "pairable", "reference"]


@pytest.mark.parametrize("member", METHODS)
def test_a_missing_method_is_named(member):
    with pytest.raises(ConfigError, match=rf"pipeline workloads:Broken lacks the method {member}\(\)"):
        load_pipeline("workloads:Broken", {"without": member})


@pytest.mark.parametrize("member", VALUES)
def test_a_missing_value_is_named_with_its_meaning(member):
    with pytest.raises(ConfigError, match=f"pipeline workloads:Broken lacks {member}: "):
        load_pipeline("workloads:Broken", {"without": member})


@pytest.mark.parametrize(
    ("member", "value", "meaning"),
    [
        ("metric", 5, "the name of the metric"),
        ("mode", "maximum", '"max" or "min"'),
        ("mode", None, '"max" or "min"'),
        ("num_train_samples", 240.0, "a whole number"),
        ("num_train_samples", True, "a whole number"),
        ("num_train_samples", 0, "above 0"),
        ("pairable", 1, "True or False"),
        ("reference", {"lr": 1}, "a vrgd_ray.Recipe"),
    ],
)
def test_a_wrong_value_is_named_with_its_meaning(member, value, meaning):
    with pytest.raises(ConfigError, match=f"{member} = .* must be .*{meaning}"):
        load_pipeline("workloads:Broken", {"wrong": member, "value": value})


@pytest.mark.parametrize("member", METHODS)
def test_a_method_that_cannot_be_called_counts_as_missing(member):
    with pytest.raises(ConfigError, match=rf"lacks the method {member}\(\)"):
        load_pipeline("workloads:Broken", {"wrong": member, "value": 3})


def test_a_whole_pipeline_passes():
    check_members(workloads.Blobs(), "blobs")


def test_modules_that_begin_with_an_underscore_are_not_listed(tmp_path, monkeypatch):
    import pipelines

    (tmp_path / "_helper.py").touch()
    (tmp_path / "extra.py").touch()
    monkeypatch.setattr(pipelines, "__path__", [str(tmp_path)])
    assert available_pipelines() == ["pipelines.extra"]


def test_a_source_keeps_its_pipeline_open():
    source = PipelineSource.here("workloads:Blobs", {"num_train_samples": 30})
    assert source.open() is source.open()
    assert source.open() is PipelineSource.here("workloads:Blobs", {"num_train_samples": 30}).open()
    assert PipelineSource.here("workloads:Blobs", {"num_train_samples": 33}).open().num_train_samples == 33


def test_a_source_takes_arguments_that_are_lists(module):
    name = module(
        "from workloads import Blobs\nclass Listed(Blobs):\n    def __init__(self, sizes):\n"
        "        super().__init__(sum(sizes))\n"
    )
    assert PipelineSource.here(name, {"sizes": [10, 20]}).open().num_train_samples == 30


def test_a_source_opens_in_a_fresh_process_elsewhere(module, tmp_path):
    (tmp_path / "workloads.py").write_text(Path(workloads.__file__).read_text())
    source = PipelineSource.here(module(ONE_CLASS), {"size": 90})
    (tmp_path / "source.pickle").write_bytes(pickle.dumps(source))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).open().num_train_samples)"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "source.pickle")],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert elsewhere.stdout == "90\n", elsewhere.stderr
