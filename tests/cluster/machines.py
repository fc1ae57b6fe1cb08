"""Machines for a test: namespaces on this one, with processes, network, /tmp, home folder and SSH server of their own.

`ray stop`, which `ray up` and `ray down` call, ends every process of Ray it can see; in here that is its own machine's.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNSHARE = ["unshare", "--pid", "--fork", "--mount", "--net", "--mount-proc", "--kill-child"]
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
GATEWAY = "10.0.0.254"


def why_not():
    """Why machines cannot be had here, or nothing."""
    missing = [
        name
        for name in ("unshare", "setpriv", "nsenter", "ip", "ssh", "rsync", "curl", "pgrep")
        if shutil.which(name) is None
    ]
    if missing or SSHD is None:
        return f"needs {', '.join(missing or ['sshd'])}"
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    tried = subprocess.run([*UNSHARE, "ip", "link", "add", "bridge0", "type", "bridge"], capture_output=True, text=True)
    return f"namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else ""


class Machine:
    """One machine; /mnt is `folder`, /srv is shared by all."""

    def __init__(self, folder, process):
        self.folder, self.process = folder, process
        self.pid = self._first_process()

    def run(self, command, timeout=120, **environment):
        """Run a shell command in it, from the repository; output and errors come back together."""
        command = f"cd {ROOT} && {command}"  # nsenter leaves us in the machine's root folder
        inside = ["nsenter", "--target", str(self.pid), "--pid", "--mount", "--net", "bash", "-c", command]
        path = f"/mnt/home/env/bin:{os.environ['PATH']}"
        return subprocess.run(
            inside,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            env={"PATH": path, "HOME": "/mnt/home", "TERM": "dumb", **environment},
        )

    def check(self, command, timeout=120, **environment):
        """Run a command that must succeed, and return what it prints."""
        done = self.run(command, timeout, **environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def _first_process(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(until(lambda: children.read_text().split())[0])


@contextmanager
def network(folder, addresses):
    """A machine without an SSH server, at GATEWAY, and one with it for each address, all on one network."""
    (folder / "shared").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "shared/key"], check=True)
    with ExitStack() as started:
        laptop, *machines = (
            started.enter_context(_machine(folder / name, folder / "shared", name != GATEWAY))
            for name in (GATEWAY, *addresses)
        )
        _ip(laptop, "link add bridge0 type bridge", f"addr add {GATEWAY}/24 dev bridge0", "link set bridge0 up")
        for number, (machine, address) in enumerate(zip(machines, addresses, strict=True)):
            port = f"port{number}"
            _ip(
                laptop,
                f"link add {port} type veth peer name eth0 netns {machine.pid}",
                f"link set {port} master bridge0 up",
            )
            # Ray takes the address of the interface that leads out as its own.
            _ip(machine, f"addr add {address}/24 dev eth0", "link set eth0 up", f"route add default via {GATEWAY}")
        yield laptop, *machines


@contextmanager
def _machine(folder, shared, has_sshd):
    folder.mkdir()
    script = Path(__file__).parent / "machine.sh"
    # Ends with this process, however that ends.
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        *UNSHARE,
        "bash",
        script,
        folder,
        shared,
        ROOT,
        sys.prefix,
        SSHD if has_sshd else "",
    ]
    with (
        (folder / "output.txt").open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            machine = Machine(folder, process)
            until((folder / "ready").exists, lambda: (folder / "output.txt").read_text())
            yield machine
        finally:
            process.kill()  # and with it, by --kill-child, everything in the namespaces


def _ip(machine, *commands):
    """Set up a machine's network from outside, where processes have the numbers we know."""
    for command in commands:
        subprocess.run(["nsenter", "--target", str(machine.pid), "--net", "ip", *command.split()], check=True)


def until(condition, explain=lambda: "waited in vain", seconds=60):
    """Return the first value of the condition that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)
    return found
