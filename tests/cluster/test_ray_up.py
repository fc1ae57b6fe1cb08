"""clusters/local.yaml, as it is shipped, from `ray up` over a training run to `ray down`, on machines of the test's own."""

import re
from pathlib import Path

import machines
import pytest
import yaml

from vrgd_ray import Recipe

ROOT = Path(__file__).parents[2]
HEAD, WORKER = "10.0.0.1", "10.0.0.2"
CLUSTER = "/mnt/local.yaml"
TOKEN = {"RAY_AUTH_MODE": "token"}
RECIPE = Recipe(optimizer="vr_adamw", batch_size=32, lr=3e-3, epochs=0.28)

REASON = machines.why_not()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(290), pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A laptop, and a head and a worker that it knows only by SSH."""
    with machines.network(tmp_path_factory.mktemp("machines"), [HEAD, WORKER]) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network):
    laptop, head, worker = network
    text = (ROOT / "clusters/local.yaml").read_text()
    for shipped, here in {"[10.0.0.2, 10.0.0.3]": f"[{WORKER}]", "ssh_user: ubuntu": "ssh_user: root"}.items():
        assert shipped in text
        text = text.replace(shipped, here)
    (laptop.folder / "local.yaml").write_text(text)
    config = {"pipeline": "pipelines.digits", "recipe": RECIPE.to_dict()}
    (laptop.folder.parent / "shared/best.yaml").write_text(yaml.safe_dump(config))
    laptop.check("ray get-auth-token --generate", **TOKEN)
    laptop.check(f"ray up {CLUSTER} -y", timeout=180, **TOKEN)
    yield laptop, head, worker


def on_head(laptop, command):
    done = laptop.run(f"ray exec {CLUSTER} '{command}'", timeout=240, **TOKEN)
    return done.returncode, done.stdout


def test_training_waits_for_the_worker_and_uses_both_machines(cluster):
    import os, time
    t=time.time()
    laptop, head, worker = cluster
    cores = os.cpu_count()
    command = (
        f"cd ~/vrgd-ray && python -m vrgd_ray.train --config /srv/best.yaml --workers {cores+1} --address auto "
        "--wait 100 --storage /srv/storage --tracking-uri http://127.0.0.1:5000"
    )
    status, output = on_head(laptop, command)
    print(status, output, time.time()-t)
    print(head.check("ss -ltnp"))
    print(worker.check("ss -ltnp"))
    print(head.run("cat /mnt/home/uv.log; tail -40 /tmp/ray/session_latest/logs/monitor*", **TOKEN).stdout)
    print(on_head(laptop, "ray status"))
    t=time.time()
    for env in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE":"token","RAY_AUTH_TOKEN":"w"*32}, {**TOKEN}):
      for addr in (f"{HEAD}:6379", f"ray://{HEAD}:10001"):
        print(env, addr, laptop.run(f"timeout 30 python -c \"import ray; ray.init(address=\\\"{addr}\\\"); print(42)\"", **env).stdout[-900:], time.time()-t)
    print(laptop.run(f"ray down {CLUSTER} -y", **TOKEN).stdout[-500:], time.time()-t)
    print(worker.run("ps aux").stdout)
    print(head.run("ps aux").stdout)
    assert 0
