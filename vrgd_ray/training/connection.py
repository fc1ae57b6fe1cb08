"""The connection to Ray: a running cluster that fits this program and is big enough, or an instance of our own."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vrgd_ray.config import ConfigError, first_line, require

Needs = Sequence[Mapping[str, float]]
"""What must be there at once; each mapping of resource to amount is one process and has to fit on one machine."""
Say = Callable[[str], None]

_GRACE = 3.0
"""Seconds in which a cluster that is big enough says so."""
_SAY_EVERY = 30.0
_ANSWER = 60.0
"""Seconds a machine gets to name its versions; the first process on it takes a few."""
_REMEDY = "Use fewer workers, add machines, or wait longer with --wait."
_SAME_EVERYWHERE = ("torch", "vrgd_ray")
_QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints a box even when told to be silent
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # the default makes every report wait 2 s
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
}
"""Settings of Ray that must be in the environment before `ray.init`; the user's own win."""


@contextmanager
def connect(
    address: str | None,
    *,
    resources: Mapping[str, float] | None = None,
    needs: Needs = (),
    dashboard: bool = False,
    wait: float = 0.0,
) -> Iterator[None]:
    """Ray for the time of the context: the cluster at the address, or an instance of our own on this machine.

    Args:
        address: a running cluster, as "auto"; None starts Ray here.
        resources: custom resources that an instance of our own declares.
        needs: what must be there before anything starts. A cluster may grow and is waited for; this machine is not.
        dashboard: whether an instance of our own runs the dashboard and its agent.
        wait: seconds a cluster gets to offer what is needed.

    Raises:
        ConfigError: there is no cluster at the address, it has other versions than this process or does not grow in
            time, or this machine lacks what is needed.
    """
    import ray

    require(wait >= 0, f"--wait {wait:g} must be at least 0 seconds.")
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"include_dashboard": dashboard, "resources": dict(resources or {})}
    else:  # the processes of a running cluster do not see this environment
        options["runtime_env"] = {"env_vars": _QUIET}
    try:
        _init(address, options)
        if address is None:
            _check_needs(needs, ray.cluster_resources())
        else:
            wait_for_resources(needs, wait, _say)
            check_nodes(_say)
        yield
    finally:
        ray.shutdown()


def _init(address: str | None, options: Mapping[str, Any]) -> None:
    import ray

    try:
        ray.init(address=address or "local", **options)
    except ConnectionError as error:
        if "AuthenticationError" in str(error.__cause__):  # which holds Ray's own as text alone
            raise ConfigError(
                f"the Ray cluster at --address {address} asks for its token; copy it into ~/.ray/auth_token and set "
                "RAY_AUTH_MODE=token."
            ) from error
        raise ConfigError(f"no Ray cluster at --address {address}: {first_line(error)}.") from error
    except RuntimeError as error:
        # Ray compares its own version and Python's down to the patch, and says so in six lines.
        versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error))
        if len(versions) != 2:
            raise
        (cluster_ray, cluster_python), (ray_here, python_here) = versions
        raise ConfigError(
            f"the cluster at --address {address} runs Ray {cluster_ray} on Python {cluster_python}, this command Ray "
            f"{ray_here} on Python {python_here}; start it on the cluster's head, or in an environment with the "
            "cluster's versions."
        ) from error


def _check_needs(needs: Needs, available: Mapping[str, float]) -> None:
    for name, amount in _total(needs).items():
        have = available.get(name, 0.0)
        require(
            amount <= have,
            f"{amount:g} {name}s are needed at once and this machine has {have:g}; use fewer workers, or a cluster "
            "with --address.",
        )


def wait_for_resources(
    needs: Needs, timeout: float, say: Say, *, clock: Callable[[], float] = time.monotonic, every: float = _SAY_EVERY
) -> None:
    """Return once the cluster could start everything needed at once.

    The request is a placement group: the autoscaler sees it while it waits, and it vanishes with this process, so that
    nobody pays for machines that no one asks for any more.

    Args:
        needs: what is asked for; nothing is there at once.
        timeout: seconds to wait.
        say: takes a sentence about the waiting, at first and then again and again.
        clock: seconds that only ever grow.
        every: seconds between two such sentences.

    Raises:
        ConfigError: the time is over.
    """
    import ray.util

    if not needs:
        return
    group = ray.util.placement_group([dict(need) for need in needs], strategy="PACK")
    began = said = clock()
    try:
        there = group.wait(_GRACE)
        if not there:
            say(f"Waiting for {_missing(needs)}. An autoscaler may add what is missing within --wait {timeout:g} s.")
        while not there:
            left = began + timeout - clock()
            require(left > 0, f"waited {timeout:g} s in vain for {_missing(needs)}. {_REMEDY}")
            there = group.wait(min(1.0, left))  # in slices, since Ctrl-C is heard between them
            if not there and clock() - said >= every:
                said = clock()
                say(f"Still waiting, {began + timeout - said:.0f} s at most, for {_missing(needs)}.")
    finally:
        ray.util.remove_placement_group(group)


def _missing(needs: Needs) -> str:
    """What is asked for, process by process, and what the cluster has of it."""
    import ray

    processes = Counter(" with ".join(f"{amount:g} {name}" for name, amount in need.items()) for need in needs)
    have, free = ray.cluster_resources(), ray.available_resources()
    asked = " and ".join(f"{count} x {process}" for process, count in processes.items())
    there = ", ".join(f"{have.get(name, 0.0):g} {name} ({free.get(name, 0.0):g} free)" for name in _total(needs))
    return f"{asked}; the cluster has {there}"


def _total(needs: Needs) -> Counter[str]:
    total: Counter[str] = Counter()  # counts may be fractions
    for need in needs:
        total.update(need)
    return total


def check_nodes(say: Say) -> None:
    """Compare the packages that decide what is computed on every machine of the cluster with those of this process.

    Ray has compared its own version and Python's by then, the machines' when they joined. A machine that does not
    answer is named and left alone: it may be leaving.

    Args:
        say: takes a sentence about a machine that could not be asked.

    Raises:
        ConfigError: a machine has other versions.
    """
    import ray

    here = _version_reader()(_SAME_EVERYWHERE)
    asked = {_ask(node["NodeID"]): node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER)
    for reference in answered:
        try:
            _compare(asked[reference], ray.get(reference), here)
        except ray.exceptions.RayError:
            silent.append(reference)
    for reference in silent:
        say(f"The machine {asked[reference]} did not say which versions it has.")


def _compare(machine: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    for package, version in here.items():
        require(
            there[package] == version,
            f"{package} is {there[package]} on the machine {machine} and {version} where this command runs; install "
            "the same version on every machine, as the setup commands of cluster.yaml do.",
        )


def _ask(node: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    task = ray.remote(_version_reader()).options(num_cpus=0, scheduling_strategy=strategy, max_retries=0)
    return task.remote(_SAME_EVERYWHERE)


def _version_reader() -> Callable[[Sequence[str]], dict[str, str]]:
    """A function that travels by value, since this package may be missing where it runs."""

    def read(packages: Sequence[str]) -> dict[str, str]:
        from importlib.metadata import PackageNotFoundError, version

        found = {}
        for package in packages:
            try:
                found[package] = version(package).partition("+")[0]  # builds for CPU and for CUDA may meet
            except PackageNotFoundError:
                found[package] = "not installed"
        return found

    return read


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
