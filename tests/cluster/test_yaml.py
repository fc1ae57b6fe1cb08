"""Every cluster file passes what validators there are, pins what constraints.txt pins, and gives nothing away."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCHED = ["cluster.yaml", "clusters/local.yaml"]
FILES = [*LAUNCHED, "clusters/kuberay.yaml", "clusters/Dockerfile"]
CONSTRAINTS = dict(
    re.findall(r"^([\w-]+)==([\w.]+)(?! ; python_version <)", (ROOT / "constraints.txt").read_text(), re.M)
)
NEEDED = {"vrgd_ray", "pipelines", "search_spaces", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}


def text(name):
    return (ROOT / name).read_text()


@pytest.fixture(params=LAUNCHED)
def config(request) -> dict[str, Any]:
    """What `ray up` is given."""
    return yaml.safe_load(text(request.param))


@pytest.fixture
def aws() -> dict[str, Any]:
    return yaml.safe_load(text("cluster.yaml"))


@pytest.fixture
def kubernetes() -> dict[str, Any]:
    """The objects of the KubeRay file by kind."""
    return {found["kind"]: found for found in yaml.safe_load_all(text("clusters/kuberay.yaml"))}


@pytest.fixture
def ray_cluster(kubernetes):
    return kubernetes["RayCluster"]["spec"]


def commands(config):
    return [command for key, listed in config.items() if key.endswith("_commands") for command in listed]


def containers(group):
    return {container["name"]: container for container in group["template"]["spec"]["containers"]}


def test_rays_own_validators_accept_it(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))


def test_every_command_is_valid_shell(config):
    for command in commands(config):
        checked = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
        assert checked.returncode == 0, f"{command}: {checked.stderr}"


@pytest.mark.parametrize("name", [*LAUNCHED, "clusters/Dockerfile"])
def test_pinned_versions_are_those_of_the_constraints(name):
    pinned = dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?==([\d.]+)"', text(name)))
    assert {"ray", "torch"} <= set(pinned)
    assert pinned == {package: CONSTRAINTS[package] for package in pinned}


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
    assert {str(path) for path in here} >= NEEDED


def test_the_clouds_machines_and_ones_own_are_set_up_alike(aws):
    local = yaml.safe_load(text("clusters/local.yaml"))
    for shared in ("file_mounts", "rsync_exclude", "setup_commands"):
        assert local[shared] == aws[shared], shared
    assert local["head_start_ray_commands"][2:] == aws["head_start_ray_commands"][2:], "MLflow"


def test_workers_start_at_none_on_the_spot_market_and_the_head_is_on_demand(aws):
    head, worker = (aws["available_node_types"][name] for name in ("head", "gpu_worker"))
    assert "InstanceMarketOptions" not in head["node_config"]
    assert worker["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert worker["min_workers"] == 0
    assert 0 < worker["max_workers"] <= aws["max_workers"]
    assert worker["resources"]["GPU"] >= 1


def test_the_head_can_steer_trials_of_several_workers(ray_cluster, aws):
    from vrgd_ray.search.study import TrialResources, ray_resources

    (slot,) = ray_resources(TrialResources(workers=2))
    assert slot in aws["available_node_types"]["head"]["resources"]
    assert f"--resources='{{\"{slot}\": 64}}'" in text("clusters/local.yaml")
    # KubeRay hands the value to a shell, quotes included.
    assert ray_cluster["headGroupSpec"]["rayStartParams"]["resources"] == f'"{{\\"{slot}\\": 64}}"'


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_opened_and_no_secret_is_inside(name):
    assert "0.0.0.0" not in text(name)
    assert not re.search(
        r"AKIA[0-9A-Z]{16}|BEGIN .*PRIVATE KEY|aws_secret|arn:aws:iam::\d{12}|AUTH_TOKEN\b|stringData", text(name)
    )


def test_pages_are_served_to_the_head_alone_and_ray_asks_for_the_token(config):
    started = "\n".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in started
    assert "mlflow server --host 127.0.0.1" in started
    assert "RAY_AUTH_MODE=token" in "\n".join(config["setup_commands"])
    assert "~/.ray/auth_token" in config["file_mounts"]


# KubeRay publishes its schema only with its operator, a megabyte of it, so the fields are checked by hand against
# RayClusterSpec of version 1.5.1.


def test_kuberay_gets_a_cluster_with_the_fields_it_requires(kubernetes, ray_cluster):
    assert kubernetes["RayCluster"]["apiVersion"] == "ray.io/v1"
    known = {"rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions"}
    assert set(ray_cluster) == known | {"headGroupSpec", "workerGroupSpecs"}
    for group in (ray_cluster["headGroupSpec"], *ray_cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for container in containers(group).values():
            assert {"name", "image", "resources"} <= set(container)
            assert container["resources"]["requests"].keys() == container["resources"]["limits"].keys()
            assert all(isinstance(word, str) for word in container.get("command", []) + container.get("args", []))
    assert next(iter(containers(ray_cluster["headGroupSpec"]))) == "ray-head", "Ray runs in the first container"


def test_kuberay_runs_the_ray_of_the_constraints_in_every_pod(ray_cluster):
    assert ray_cluster["rayVersion"] == CONSTRAINTS["ray"]
    assert f"FROM rayproject/ray:{CONSTRAINTS['ray']}-py311" in text("clusters/Dockerfile")
    groups = ray_cluster["headGroupSpec"], *ray_cluster["workerGroupSpecs"]
    assert len({container["image"] for group in groups for container in containers(group).values()}) == 1
    version = re.search(r'^version = "(.*)"', text("pyproject.toml"), re.M).group(1)
    assert containers(groups[0])["ray-head"]["image"].endswith(f"/vrgd-ray:{version}")


def test_the_image_holds_everything_the_build_needs():
    copied = re.findall(r"^COPY --chown=ray (.*) \S+$", text("clusters/Dockerfile"), re.M)
    assert set(" ".join(copied).split()) == NEEDED


def test_gpu_pods_start_at_none_and_are_scaled(ray_cluster):
    (gpu,) = ray_cluster["workerGroupSpecs"]
    assert ray_cluster["enableInTreeAutoscaling"] is True
    assert gpu["replicas"] == gpu["minReplicas"] == 0 < gpu["maxReplicas"]
    assert containers(gpu)["ray-worker"]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert ray_cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_pods_ask_for_the_token_and_talk_to_each_other_alone(kubernetes, ray_cluster):
    assert ray_cluster["authOptions"] == {"mode": "token"}
    head = ray_cluster["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP"
    assert head["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    assert containers(head)["mlflow"]["command"][2:4] == ["--host", "127.0.0.1"]
    policy, own = kubernetes["NetworkPolicy"]["spec"], {"matchLabels": {"ray.io/cluster": "vrgd-ray"}}
    assert kubernetes["RayCluster"]["metadata"]["name"] == "vrgd-ray"
    assert policy["podSelector"] == own
    assert policy["ingress"] == [{"from": [{"podSelector": own}]}]


def test_the_volume_of_the_head_exists(kubernetes, ray_cluster):
    pod = ray_cluster["headGroupSpec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == kubernetes["PersistentVolumeClaim"]["metadata"]["name"]
    for container in pod["containers"]:
        assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]
