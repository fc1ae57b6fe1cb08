"""The arrows between the parts: who may import whom, read from the source of every file."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vrgd_ray

ROOT = Path(vrgd_ray.__file__).parent.parent

BASE = {"config"}
CORE = BASE | {
    "argument_types",
    "cache",
    "data",
    "keyed",
    "mapped",
    "parquet",
    "pipeline",
    "optim",
    "gradients",
    "schedules",
}
TRAINING = CORE | {"tracking", "training"}
SEARCH = TRAINING | {"search"}
LIMIT = SEARCH | {"limit"}
ENTRY = LIMIT | {"report", "progress", "cli", "tune", "train", "__main__", ""}
MAY_IMPORT = {
    "config": set(),
    "data": BASE,
    "keyed": BASE,
    "mapped": BASE,
    "cache": BASE,
    "parquet": BASE | {"cache", "mapped"},
    "argument_types": BASE,
    "pipeline": BASE | {"argument_types"},
    "optim": BASE | {"optim"},
    "gradients": BASE | {"gradients"},
    "schedules": BASE,
    "tracking": BASE | {"tracking"},
    "training": TRAINING,
    "search": SEARCH,
    "limit": LIMIT,
    "report": {"report"},
    "progress": LIMIT,
    "cli": ENTRY,
    "tune": ENTRY,
    "train": ENTRY,
    "__main__": ENTRY,
    "": ENTRY,
}
"""Part of the package -> parts it may import; "" is the package itself."""

ONLY_IN = {
    "ray": {
        "vrgd_ray/training/connection.py",
        "vrgd_ray/training/worker.py",
        "vrgd_ray/training/monitor.py",
        "vrgd_ray/search/pruning.py",
        "vrgd_ray/search/study.py",
        "vrgd_ray/search/tune_context.py",
        "vrgd_ray/limit/finder.py",
        "vrgd_ray/tune.py",
        "vrgd_ray/train.py",
    },
    "optuna": {"vrgd_ray/search/", "search_spaces/"},
    "mlflow": {"vrgd_ray/tracking/mlflow.py"},
    "matplotlib": {"vrgd_ray/report/"},
}

FILES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("vrgd_ray", "pipelines", "search_spaces")
    for path in (ROOT / folder).rglob("*.py")
)


def imports(tree):
    """Every (module, names) imported anywhere in a file, in functions too; names is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module, tuple(alias.name for alias in node.names)


def imports_of(file):
    return list(imports(ast.parse((ROOT / file).read_text())))


def modules_of(file):
    """Full names of the package's own modules a file imports; `from vrgd_ray import cli` means vrgd_ray.cli."""
    for module, names in imports_of(file):
        if module == "vrgd_ray" and names:
            yield from (_home(name) for name in names)
        elif module.split(".")[0] == "vrgd_ray":
            yield module


def _home(name):
    is_module = (ROOT / "vrgd_ray" / name).is_dir() or (ROOT / "vrgd_ray" / f"{name}.py").exists()
    return f"vrgd_ray.{name}" if is_module else "vrgd_ray"


def part_of(module):
    return module.split(".")[1] if "." in module else ""


def breaches(file):
    part = (
        "__main__"
        if file.endswith("/__main__.py")
        else part_of(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    )
    return [m for m in modules_of(file) if part_of(m) not in MAY_IMPORT[part]]


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("vrgd_ray/")])
def test_the_package_imports_only_along_the_arrows(file):
    assert breaches(file) == []


@pytest.mark.parametrize(
    "file",
    ["vrgd_ray/training/result.py", *(f for f in FILES if f.startswith("vrgd_ray/report/") and "__main__" not in f)],
)
def test_what_anyone_may_import_imports_nothing_of_the_package(file):
    own = "vrgd_ray.report"
    assert [m for m in modules_of(file) if m != own and not m.startswith(own + ".")] == []


@pytest.mark.parametrize("file", FILES)
def test_heavy_packages_are_imported_only_where_they_belong(file):
    for package, homes in ONLY_IN.items():
        if not any(file.startswith(home) for home in homes):
            assert package not in {module.split(".")[0] for module, _ in imports_of(file)}, package


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith("vrgd_ray/")])
def test_pipelines_and_spaces_use_public_names_alone(file):
    for module, names in imports_of(file):
        assert not module.startswith("vrgd_ray."), module
        if module == "vrgd_ray":
            assert set(names) <= set(vrgd_ray.__all__)
            assert names


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("vrgd_ray/")])
def test_the_package_loads_pipelines_and_spaces_by_name_only(file):
    assert not {"pipelines", "search_spaces", "tests"} & {module.split(".")[0] for module, _ in imports_of(file)}


def test_the_reader_of_imports_sees_those_in_functions_and_branches():
    source = "import a.b\nif x:\n    from c import d, e\ndef f():\n    import g as h\n"
    assert set(imports(ast.parse(source))) == {("a.b", ()), ("c", ("d", "e")), ("g", ())}


def test_every_public_name_loads():
    for name in vrgd_ray.__all__:
        assert getattr(vrgd_ray, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Recipy'"):
        _ = vrgd_ray.Recipy


@pytest.mark.parametrize(
    "module", ["vrgd_ray", "vrgd_ray.tune", "vrgd_ray.train", "vrgd_ray.report.__main__", "vrgd_ray.config"]
)
def test_help_need_not_wait_for_heavy_packages(module):
    code = (
        f"import sys, {module}; print(sorted({{'torch', 'ray', 'mlflow', 'optuna', 'matplotlib'}} & set(sys.modules)))"
    )
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert fresh.stdout == "[]\n"
