"""Linear regression of arXiv 2309.13681, section 6: steps saved, and how that depends on the bounds and the groups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.reproduction.protocol import FACTORY, Found, Run
from benchmarks.reproduction.rows import Row
from benchmarks.reproduction.searches import Search, as_yaml
from benchmarks.reproduction.variants import one_at_a_time

BATCH_SIZE, STEPS = 2048, 100
_VALUES = {
    "gsnr_upper": (1.0, 1.5, 2.0, 3.0),
    "gsnr_lower": (0.01, 0.04, 0.1, 0.2, 0.4),
    "num_groups": (8, 16, 32, 64, 128, 256),
}
SETTING = {"gsnr_lower": 0.1, "gsnr_upper": 2.0, "num_groups": 64}


def searches(run: Run) -> Found:
    """SGD and VR-SGD, each with its own tuned learning rate: over the upper bound, the lower bound, the groups.

    The targets carry no noise, so the loss can fall without end, and 100 steps see every sample once.
    """
    for variant in one_at_a_time(SETTING, _VALUES):
        search = _search(variant.name, {**SETTING, **variant.settings})
        yield search, run(search)


def _search(label: str, setting: dict[str, float]) -> Search:
    groups = int(setting["num_groups"])
    reference = {"batch_size": BATCH_SIZE, "momentum": 0.0, "lr": 0.35, "epochs": 1, "num_groups": groups}
    given = {
        "pipeline": "pipelines.linear_regression",
        "num_train_samples": BATCH_SIZE * STEPS,
        "noise": 0.0,
        "reference": reference,
    }
    bounds = [f"{name}={setting[name]:g}" for name in ("gsnr_lower", "gsnr_upper")]
    fixed = ["lr=0.25:0.5", "schedule=constant", "warmup_fraction=0", "weight_decay=0", *bounds]
    return Search(
        name=f"linear_regression_{label}",
        family="sgd",
        variant=label,
        arguments=(
            *("--pipeline", FACTORY),
            *("--pipeline-args", *(f"{name}={as_yaml(value)}" for name, value in given.items())),
            *("--batch-sizes", str(BATCH_SIZE), "--optimizers", "vr_sgd", "--trials", "12", "--seeds", "5"),
            *("--full-grid", "--no-controls", "--no-warm-start", "--no-prune"),
            *(word for setting in fixed for word in ("--set", setting)),
        ),
    )


@dataclass(frozen=True)
class Measured:
    """What one setting of the scale did."""

    gsnr_lower: float
    """Lower bound."""
    gsnr_upper: float
    """Upper bound."""
    num_groups: int
    """Groups of the batch, k."""
    base_loss: float | None
    """SGD's test loss after all steps, geometric mean over the seeds; None where it diverged."""
    vr_loss: float | None
    """VR-SGD's."""
    step: float | None
    """Step at which VR-SGD's validation loss is where SGD's ends; None if never."""


def measure(seeds: Sequence[Row], curves: Sequence[Row]) -> list[Measured]:
    """The settings in the order of the rows."""
    found = []
    for name in dict.fromkeys(row["search"] for row in seeds):
        own, points = ([row for row in rows if row["search"] == name] for rows in (seeds, curves))
        vr = next(row for row in own if row["variant"] != "base")
        base_curve, vr_curve = (
            {p["samples"] // BATCH_SIZE: p["value"] for p in points if (p["variant"] == "base") == base}
            for base in (True, False)
        )
        found.append(
            Measured(
                **{field: vr[field] for field in SETTING},
                base_loss=_geometric(own, base=True),
                vr_loss=_geometric(own, base=False),
                step=step_reaching(vr_curve, base_curve[STEPS]) if vr["value"] is not None else None,
            )
        )
    return found


def _geometric(rows: Sequence[Row], *, base: bool) -> float | None:
    losses = [row["value"] for row in rows if (row["variant"] == "base") == base]
    return None if None in losses else statistics.geometric_mean(losses)


def step_reaching(curve: Mapping[int, float], target: float) -> float | None:
    """First step at which a loss, log-linear between its points, is at the target; None if never."""
    points = sorted(curve.items())
    for (step, loss), (next_step, next_loss) in pairwise(points):
        if next_loss <= target < loss:
            return step + (next_step - step) * math.log(loss / target) / math.log(loss / next_loss)
    return None
