"""The examples of docs/optimizers.md run as they stand."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"


def run_example(heading, folder, *launcher, **environment):
    """Write the first code block below a heading to a file and run that; returns what it printed."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert section.index(code) < section.find("\n## ")
    (folder / "train.py").write_text(code)
    command = [sys.executable, *launcher, str(folder / "train.py")]
    result = subprocess.run(command, env=os.environ | environment, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_one_process(tmp_path):
    lines = run_example("One process", tmp_path).splitlines()
    assert len(lines) == 10
    assert all(0.1 <= float(mean) <= 1.0 and 0.1 <= float(ratio) <= 1.0 for _, mean, ratio in map(str.split, lines))


@pytest.mark.slow  # on a crowded machine a worker sometimes aborts while its interpreter ends, after the last step
def test_several_processes(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run_example("Several processes, with torchrun", tmp_path, *launcher, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")


@pytest.mark.slow
def test_ray_train(tmp_path):
    # A cluster of its own, in a folder of its own (short: sockets lie in it), whatever else runs on the machine.
    with tempfile.TemporaryDirectory() as folder:
        own = {"RAY_ADDRESS": "local", "RAY_TMPDIR": folder, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
        run_example("Ray Train", tmp_path, **own)
