"""cluster.yaml passes Ray's own validators, pins what constraints.txt pins, and opens or gives away nothing."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "cluster.yaml").read_text()
CONSTRAINTS = dict(
    re.findall(r"^([\w-]+)==([\w.]+)(?! ; python_version <)", (ROOT / "constraints.txt").read_text(), re.M)
)


@pytest.fixture
def config() -> dict[str, Any]:
    return yaml.safe_load(TEXT)


def commands(config):
    return [command for key, listed in config.items() if key.endswith("_commands") for command in listed]


def test_rays_own_validators_accept_it(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_every_command_is_valid_shell(config):
    for command in commands(config):
        checked = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
        assert checked.returncode == 0, f"{command}: {checked.stderr}"


def test_pinned_versions_are_those_of_the_constraints(config):
    pinned = dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?==([\d.]+)"', "\n".join(commands(config))))
    assert {"ray", "torch"} <= set(pinned)
    assert pinned == {name: CONSTRAINTS[name] for name in pinned}


def test_every_install_obeys_the_constraints(config):
    installs = [command for command in commands(config) if "pip install" in command]
    assert installs
    assert all("--constraint ~/vrgd-ray/constraints.txt" in command for command in installs)


def test_python_is_one_the_project_supports(config):
    (python,) = re.findall(r"--python (\d+\.\d+)", "\n".join(commands(config)))
    lowest = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tuple(map(int, python.split("."))) >= tuple(map(int, lowest.groups()))


def test_everything_the_build_needs_is_mounted_and_exists(config):
    here = [Path(path) for path in config["file_mounts"].values() if not path.startswith("~")]
    assert all((ROOT / path).exists() for path in here)
    needed = {"vrgd_ray", "pipelines", "search_spaces", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert needed <= {str(path) for path in here}


def test_workers_start_at_none_on_the_spot_market_and_the_head_is_on_demand(config):
    head, worker = (config["available_node_types"][name] for name in ("head", "gpu_worker"))
    assert "InstanceMarketOptions" not in head["node_config"]
    assert worker["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert worker["min_workers"] == 0
    assert 0 < worker["max_workers"] <= config["max_workers"]
    assert worker["resources"]["GPU"] >= 1


def test_nothing_listens_publicly_and_no_secret_is_inside(config):
    assert "0.0.0.0" not in TEXT
    assert "--dashboard-host=127.0.0.1" in "\n".join(config["head_start_ray_commands"])
    assert "RAY_AUTH_MODE=token" in "\n".join(config["setup_commands"])
    assert "~/.ray/auth_token" in config["file_mounts"]
    assert not re.search(r"AKIA[0-9A-Z]{16}|BEGIN .*PRIVATE KEY|aws_secret|arn:aws:iam::\d{12}", TEXT)
