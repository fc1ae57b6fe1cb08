"""What an optimizer step costs beside torch's own: time ratios, time of the first step, peak memory.

    python -m benchmarks.optimizer_step [--rounds 15] [--threads 1 2]

All optimizers step on the same parameters in turn, so that a busy machine slows all alike; times are medians over the
rounds, ratios are medians of the ratio within a round. Needs `pip install vrgd-ray[benchmarks]` for the foreign LAMB.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from unittest import mock

import torch
from torch import nn

from vrgd_ray.optim import LAMB, LARS, VRLAMB, VRLARS, VRSGD, VRAdam, VRAdamW, native

WARM_UP = 3
MODELS = {
    "21 M in 100 tensors": (100, 210_000),
    "21 M in 1,000 tensors": (1_000, 21_000),
    "1 M in 10,000 tensors": (10_000, 100),
}
REFERENCES = ("AdamW fused", "AdamW default", "SGD fused", "SGD default", "pytorch-optimizer Lamb")
Build = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def builders() -> dict[str, Build]:
    """Return how to build each optimizer, the references first."""
    found: dict[str, Build] = {
        "AdamW fused": lambda params: torch.optim.AdamW(params, fused=True),
        "AdamW default": lambda params: torch.optim.AdamW(params),
        "SGD fused": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, fused=True),
        "SGD default": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9),
        "VRAdamW": lambda params: VRAdamW(params),
        "VRAdam": lambda params: VRAdam(params),
        "VRLAMB": lambda params: VRLAMB(params, lr=1e-3),
        "LAMB": lambda params: LAMB(params, lr=1e-3),
        "VRSGD": lambda params: VRSGD(params, lr=0.1, momentum=0.9),
        "VRLARS": lambda params: VRLARS(params, lr=0.1),
        "LARS": lambda params: LARS(params, lr=0.1),
    }
    try:
        from pytorch_optimizer import Lamb
    except ImportError:
        return found
    return {"pytorch-optimizer Lamb": lambda params: Lamb(params)} | found


def parameters(count: int, size: int, device: str) -> list[nn.Parameter]:
    """Return parameters with random gradients and variances."""
    params = [nn.Parameter(torch.randn(size, device=device)) for _ in range(count)]
    for param in params:
        param.grad = torch.randn_like(param)
        param.grad_var = torch.rand_like(param) + 0.1  # type: ignore[attr-defined]
    return params


def timed_step(optimizer: torch.optim.Optimizer, params: list[nn.Parameter]) -> float:
    """Return the seconds of one step on moments that count as fresh."""
    for param in params:
        param.grad_var.consumed = False  # type: ignore[attr-defined]
    synchronize(params[0])
    start = time.perf_counter()
    optimizer.step()
    synchronize(params[0])
    return time.perf_counter() - start


def synchronize(param: nn.Parameter) -> None:
    """Wait for the device."""
    if param.is_cuda:
        torch.cuda.synchronize()


def measure(count: int, size: int, device: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every optimizer in every round."""
    params = parameters(count, size, device)
    optimizers = {name: build(params) for name, build in builders().items()}
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for _ in range(WARM_UP + rounds):
        for name, optimizer in optimizers.items():
            times[name].append(timed_step(optimizer, params))
    return {name: values[WARM_UP:] for name, values in times.items()}


def ratio(times: dict[str, list[float]], name: str, reference: str) -> str:
    """Return the median over rounds of one time divided by the other."""
    if reference not in times:
        return "-"
    return f"{statistics.median(a / b for a, b in zip(times[name], times[reference], strict=True)):.2f}"


def table(times: dict[str, list[float]]) -> str:
    """Return the times and ratios as a Markdown table."""
    lines = ["| optimizer | ms | / " + " | / ".join(REFERENCES) + " |", "|---" * (len(REFERENCES) + 2) + "|"]
    for name, values in times.items():
        cells = [f"{statistics.median(values) * 1e3:.1f}", *(ratio(times, name, other) for other in REFERENCES)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def first_step(count: int, size: int) -> float:
    """Return the seconds of VRAdamW's very first step, with nothing in the cache folder."""
    native.library.cache_clear()
    params = parameters(count, size, "cpu")
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
        return timed_step(VRAdamW(params), params)


def peak_memory(build: Build, size: int) -> float:
    """Return the memory a step needs beside its state, in units of the one large tensor."""
    params = parameters(1, size, "cpu")
    optimizer = build(params)
    timed_step(optimizer, params)
    with torch.profiler.profile(profile_memory=True) as profile:
        timed_step(optimizer, params)
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    changes = [event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()) if event.name() == "[memory]"]
    return max(accumulate(changes), default=0) / (size * 4)


def report_start_and_memory() -> None:
    """Print the time of the first step and the peak memory."""
    print("\n## First step of VRAdamW, seconds (compilation, creation of the state)\n")
    for count, size in ((10, 10_000), (100, 9_000), (100, 210_000)):
        print(f"* {count * size / 1e6:g} M parameters: {first_step(count, size):.2f}")
    print("\n## Peak memory of a step beside the state, in units of the only tensor (21 M elements)\n")
    for name, build in builders().items():
        print(f"* {name}: {max(peak_memory(build, 21_000_000), 0.0):.2f}")


def main() -> None:
    """Print everything as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="CPU threads")
    arguments = parser.parse_args()
    compiled = "with" if native.library() else "without"
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {compiled} kernels")
    settings = [("cpu", threads) for threads in arguments.threads]
    for device, threads in settings + ([("cuda", 1)] if torch.cuda.is_available() else []):
        torch.set_num_threads(threads)
        for model, (count, size) in MODELS.items():
            print(f"\n## {model}, {device}, {threads} thread(s)\n", flush=True)
            print(table(measure(count, size, device, arguments.rounds)), flush=True)
    report_start_and_memory()


if __name__ == "__main__":
    main()
