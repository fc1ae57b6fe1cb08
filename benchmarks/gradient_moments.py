"""What mean and variance over groups cost beside plain gradient accumulation: time ratios and bytes sent.

    python -m benchmarks.gradient_moments [--steps 30] [--threads 1] [--workers 2]

One optimizer step over 8 groups, alternating between the ways to take it so that a busy machine slows all alike; ratios
are medians over steps of the time divided by plain accumulation's time in the same round.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from vrgd_ray.gradients import GradientMoments

NUM_GROUPS = 8
WARM_UP = 3
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Workload:
    """A model, the shape of one sample and the samples in a group."""

    name: str
    build: Callable[[], nn.Module]
    sample_shape: tuple[int, ...]
    group_size: int

    def groups(self, count: int) -> list[Batch]:
        """Return random groups."""
        size = self.group_size
        return [(torch.randn(size, *self.sample_shape), torch.randint(10, (size,))) for _ in range(count)]


def conv_net() -> nn.Module:
    """Return a small convolutional network with batch normalisation for 32 x 32 images."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2), (64, 128, 2), (128, 128, 1)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def perceptron() -> nn.Module:
    """Return a perceptron: as many parameters for as little arithmetic as there can be."""
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )  # fmt: skip


CONV = Workload("convolutional net, 0.25 M parameters", conv_net, (3, 32, 32), 32)
CONV_SMALL_GROUP = Workload("the same, half the group", conv_net, (3, 32, 32), 16)
PERCEPTRON = Workload("perceptron, 1.9 M parameters", perceptron, (784,), 32)


def accumulation_step(model: nn.Module, groups: list[Batch]) -> Callable[[], None]:
    """Return the plain step: gradients accumulate, with DistributedDataParallel reduced in the last backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        for i, (x, y) in enumerate(groups):
            model.require_backward_grad_sync = i == len(groups) - 1  # type: ignore[assignment]
            torch.autograd.backward(F.cross_entropy(model(x), y) / len(groups))
        optimizer.step()
        optimizer.zero_grad()

    return step


def moments_step(model: nn.Module, groups: list[Batch], moments: GradientMoments) -> Callable[[], None]:
    """Return the same step with the variance of the gradients as well."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        for i, (x, y) in enumerate(groups):
            with moments.micro_batch(last=i == len(groups) - 1):
                torch.autograd.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way to step, round by round."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + WARM_UP):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: values[WARM_UP:] for name, values in times.items()}


def report(title: str, times: dict[str, list[float]], sent: dict[str, int] | None = None) -> None:
    """Print one row a way to step; the first is the yardstick."""
    yardstick = next(iter(times))
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, times[yardstick], strict=True))
        cells = [title, name, f"{1e3 * statistics.median(values):.1f}", f"{ratio:.2f}"]
        if sent is not None:
            cells += [f"{sent[name] / 1e6:.2f}", f"{sent[name] / sent[yardstick]:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def one_process(workload: Workload, rounds: int) -> None:
    """Compare the ways to step in this process."""
    torch.manual_seed(0)
    groups = workload.groups(NUM_GROUPS)
    plain, with_moments, with_noise = (workload.build() for _ in range(3))
    steps = {
        "plain accumulation": accumulation_step(plain, groups),
        "mean and variance": moments_step(with_moments, groups, GradientMoments(with_moments)),
        "and noise scale": moments_step(
            with_noise, groups, GradientMoments(with_noise, group_size=workload.group_size)
        ),
    }
    report(f"{workload.name}, group {workload.group_size}", measure(steps, rounds))


def several_workers(rank: int, num_workers: int, rendezvous: str, rounds: int) -> None:
    """Compare the ways to step in one of several workers; the first prints."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=num_workers)
    for workload in (CONV, PERCEPTRON):
        torch.manual_seed(rank)
        groups = workload.groups(NUM_GROUPS // num_workers)
        plain, full, compressed = (DistributedDataParallel(workload.build()) for _ in range(3))
        moments = {
            "mean and variance": GradientMoments(full),
            'compress="bf16"': GradientMoments(compressed, compress="bf16"),
        }
        steps = {
            "plain DDP": accumulation_step(plain, groups),
            "mean and variance": moments_step(full, groups, moments["mean and variance"]),
            'compress="bf16"': moments_step(compressed, groups, moments['compress="bf16"']),
        }
        times = measure(steps, rounds)
        sent = {"plain DDP": sum(p.numel() * p.element_size() for p in plain.parameters())}
        sent |= {name: m.bytes_sent // (rounds + WARM_UP) for name, m in moments.items()}
        if rank == 0:
            report(f"{workload.name}, group {workload.group_size}", times, sent)
    dist.destroy_process_group()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="steps timed per way")
    parser.add_argument("--threads", type=int, default=1, help="threads of the single process")
    parser.add_argument("--workers", type=int, default=2, help="gloo workers, one thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} CPUs, {NUM_GROUPS} groups a step\n")
    print(f"One process, {arguments.threads} thread(s):\n")
    print("| workload | step | ms (median) | time ratio |\n|---|---|---|---|")
    for workload in (CONV, CONV_SMALL_GROUP, PERCEPTRON):
        one_process(workload, arguments.steps)
    print(f"\nDistributedDataParallel, {arguments.workers} gloo workers on loopback, one thread each:\n")
    print("| workload | step | ms (median) | time ratio | MB sent a step | bytes ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rest = (arguments.workers, f"file://{folder}/rendezvous", arguments.steps)
        spawn(several_workers, rest, arguments.workers)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
