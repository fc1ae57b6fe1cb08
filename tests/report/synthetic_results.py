"""Made-up results of searches, shaped like `result.json`."""

from __future__ import annotations

import random
from typing import Any

from vrgd_ray.report.reading import Result

SAMPLES = [200 * 165 * step for step in range(1, 31)]
TRAIN_SAMPLES, EPOCHS = 1100, 30


def recipe(optimizer: str, batch_size: int, lr: float) -> dict[str, Any]:
    return {
        "optimizer": optimizer,
        "batch_size": batch_size,
        "lr": lr,
        "epochs": EPOCHS,
        "num_groups": 8,
        "weight_decay": 0.013,
        "schedule": "cosine",
        "warmup_fraction": 0.1 if batch_size > 64 else 0.0,
        "gsnr_lower": 0.08 if batch_size > 64 else 0.1,
        "seed": 0,
    }


def steps(batch_size: int) -> int:
    return EPOCHS * TRAIN_SAMPLES // batch_size


def cell(
    batch_size: int, optimizer: str, difference: float, verdict: str, claim: str, **changes: Any
) -> dict[str, Any]:
    half, mean = 0.0035, 0.974 + difference
    return {
        "batch_size": batch_size,
        "optimizer": optimizer,
        "num_groups": 8,
        "trials": 8,
        "diverged": 0,
        "seeds": [0, 1, 2, 3, 4],
        "values": [mean - 0.003, mean - 0.001, mean, mean + 0.001, mean + 0.003],
        "mean": mean,
        "std": 0.0022,
        "difference": difference,
        "lower": difference - half,
        "upper": difference + half,
        "degenerate": False,
        "verdict": verdict,
        "claim": claim,
        "reason": None,
        "steps": steps(batch_size),
        "samples_per_second": 9000.0 * batch_size**0.4,
        "recipe": recipe(optimizer, batch_size, 0.001 * batch_size**0.5),
    } | changes


def curve(batch_size: int, optimizer: str, final: float) -> dict[str, Any]:
    values = [final - 0.85 * 2.0 ** -(30 * seen / SAMPLES[-1] * 32**0.35 / batch_size**0.35) for seen in SAMPLES]
    named = {"batch_size": batch_size, "optimizer": optimizer, "samples": SAMPLES, "values": values}
    return named | {"series": series(optimizer)}


def series(optimizer: str) -> dict[str, list[float | None]]:
    """The noise scale grows and becomes known; the scale of a VR optimizer falls and spreads."""
    past = [seen / SAMPLES[-1] for seen in SAMPLES]
    noise: list[float | None] = [None, None, *(40 + 260 * part for part in past[2:])]
    low, high = ([None if value is None else factor * value for value in noise] for factor in (0.7, 1.5))
    known: dict[str, list[float | None]] = {"noise_scale": noise, "noise_scale_low": low, "noise_scale_high": high}
    if optimizer.startswith("vr_"):
        known |= {"mean_scale": [0.8 - 0.3 * part for part in past], "step_ratio": [0.9 - 0.2 * part for part in past]}
        for name, base in (("scale_q10", 0.5), ("scale_q50", 0.7), ("scale_q90", 0.95)):
            known[name] = [base - 0.2 * part for part in past]
    return known


def tuned(batch_size: int, optimizer: str, trials: int = 8) -> dict[str, Any]:
    """A study of one cell: the metric falls off the best learning rate; the last trial diverged."""
    draw = random.Random(f"{batch_size}/{optimizer}")
    found: list[dict[str, Any]] = []
    for _ in range(trials):
        off = draw.uniform(-1, 1)
        values = {"lr": 0.001 * batch_size**0.5 * 5**off, "weight_decay": 10 ** draw.uniform(-4, -1)}
        values |= {"warmup_fraction": draw.uniform(0, 0.2), "schedule": draw.choice(["cosine", "linear", "constant"])}
        if optimizer.startswith("vr_"):
            values |= {name: draw.uniform(*ends) for name, ends in GSNR.items()}
        found.append({"values": values, "metric": 0.97 - 0.05 * off**2})
    found[-1]["metric"] = None
    return {"batch_size": batch_size, "optimizer": optimizer, "trials": found}


GSNR = {"gsnr_lower": (0.02, 0.5), "gsnr_upper": (1.0, 5.0), "gsnr_beta": (0.5, 0.99)}


def importance(optimizer: str, trials: int) -> dict[str, Any]:
    names = ["lr", "weight_decay", "schedule", "warmup_fraction", *(GSNR if optimizer.startswith("vr_") else [])]
    weights = [2.0 ** -(place + (len(optimizer) - place) % 3) for place in range(len(names))]
    shares = {name: weight / sum(weights) for name, weight in zip(names, weights, strict=True)}
    return {"optimizer": optimizer, "trials": trials, "shares": shares}


def insights(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """What a result with these cells and the usual reference says of its tuning."""
    studies = [tuned(32, "adamw"), *(tuned(each["batch_size"], each["optimizer"]) for each in cells)]
    names = list(dict.fromkeys(study["optimizer"] for study in studies))
    return {"tuning": studies, "importances": [importance(name, 40) for name in names]}


def full(**changes: Any) -> Result:
    """A finished search: both optimizers reach 256 and fail at 512."""
    cells = [
        cell(64, "adamw", -0.0006, "accept", "confirmed"),
        cell(64, "vr_adamw", 0.0004, "accept", "confirmed"),
        cell(128, "adamw", -0.002, "accept", "confirmed"),
        cell(128, "vr_adamw", -0.003, "accept", "confirmed"),
        cell(256, "adamw", -0.003, "accept", "confirmed"),
        cell(256, "vr_adamw", -0.0045, "accept", "confirmed"),
        cell(512, "adamw", -0.0105, "inconclusive", "confirmed"),
        cell(512, "vr_adamw", -0.0165, "reject", "confirmed", diverged=2),
    ]
    return {
        "schema_version": 1,
        "name": "first",
        "pipeline": "pipelines.digits",
        "metric": "accuracy",
        "mode": "max",
        "margin": 0.01,
        "relative_margin": False,
        "alpha": 0.05,
        "looks": [5, 10],
        "paired": False,
        "level_per_look": 0.0125,
        "reason": None,
        "reference": {
            "batch_size": 32,
            "optimizer": "adamw",
            "recipe": recipe("adamw", 32, 0.0031),
            "values": [0.972, 0.974, 0.976, 0.973, 0.975],
            "seeds": [0, 1, 2, 3, 4],
            "mean": 0.974,
            "std": 0.0016,
            "steps": steps(32),
            "samples_per_second": 31_000.0,
            "noise_scale": 210.0,
        },
        "control": {
            "values": [0.973, 0.974, 0.974, 0.975, 0.976],
            "difference": 0.0004,
            "lower": -0.002,
            "upper": 0.0028,
            "verdict": "accept",
        },
        "cells": cells,
        "largest": {"batch_size": 256, "optimizer": "adamw", "recipe": recipe("adamw", 256, 0.016)},
        "recommended": {
            "recipe": recipe("adamw", 256, 0.016),
            "command": "python -m vrgd_ray.train --config runs/first/best.yaml",
        },
        "cost": {"samples": 4_300_000, "seconds": 204.0, "trials": 72},
        "versions": {"vrgd_ray": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "ray": "2.60.0", "optuna": "5.0.0"},
        "curves": [curve(32, "adamw", 0.976)] + [curve(c["batch_size"], c["optimizer"], c["mean"]) for c in cells],
        "power": {
            "seed_std": 0.0021,
            "detectable_5": 0.0037,
            "detectable_10": 0.0024,
            "detectable": 0.003,
            "acceptance": 0.87,
        },
        "status": "finished",
        "command": "python -m vrgd_ray.tune --pipeline pipelines.digits --name first",
        "seed": 0,
        "concurrent_trials": 2,
        "num_train_samples": TRAIN_SAMPLES,
        "data_fingerprint": "d32c235b700dc8fe",
        "optimizers": ["adamw", "vr_adamw"],
        "batch_sizes": [64, 128, 256, 512],
        **insights(cells),
    } | changes


def interrupted() -> Result:
    """Stopped before anything was trained: every field that can be empty is empty."""
    nothing = {"values": [], "seeds": [], "mean": None, "std": None, "recipe": None, "samples_per_second": None}
    reference = {"batch_size": 32, "optimizer": "adamw", "steps": steps(32)} | nothing
    control = {"values": [], "difference": None, "lower": None, "upper": None, "verdict": "not tested"}
    gone = {"largest": None, "recommended": None, "power": None, "curves": [], "tuning": [], "importances": []}
    return full(status="interrupted", reference=reference, control=control, cells=[untested(64, "adamw")], **gone)


def nothing_known() -> Result:
    """Less than the search ever writes."""
    return {"name": "first", "metric": "accuracy", "mode": "max", "reference": None, "cells": [], "status": "stopped"}


def smaller_is_better() -> Result:
    """Mode "min", a relative margin, and one cell that collapsed far beyond it."""
    arm = {"values": [2.0, 2.1, 1.9], "seeds": [0, 1, 2], "mean": 2.0, "std": 0.1}
    reference = {"recipe": recipe("sgd", 32, 0.1), "steps": 1031, "samples_per_second": 900.0} | arm
    near = cell(64, "sgd", -0.04, "accept", "confirmed") | arm | {"mean": 2.04, "lower": -0.09, "upper": 0.01}
    far = cell(128, "sgd", -7.1, "reject", "confirmed") | arm | {"mean": 9.1, "lower": -8.0, "upper": -6.0}
    best = {"batch_size": 64, "optimizer": "sgd", "recipe": near["recipe"]}
    shown = {"metric": "loss", "mode": "min", "margin": 0.05, "relative_margin": True, "optimizers": ["sgd"]}
    return (
        full(reference=reference, cells=[near, far], largest=best, curves=[], batch_sizes=[64, 128], power=None) | shown
    )


def nothing_accepted() -> Result:
    """The first rung already failed."""
    cells = [
        cell(64, "adamw", -0.02, "reject", "not tested"),
        cell(64, "vr_adamw", -0.011, "inconclusive", "not tested"),
    ]
    return full(cells=cells, largest=None, recommended=None)


def control_failed() -> Result:
    """The reference was not accepted against itself."""
    return full() | {"control": full()["control"] | {"lower": -0.013, "verdict": "inconclusive"}}


def many_cells() -> Result:
    """Ten rungs and six optimizers, half of which climb further than the others."""
    ladder = [64 * 2**rung for rung in range(10)]
    limits = {"sgd": 512, "vr_sgd": 2048, "adamw": 1024, "vr_adamw": 4096, "lamb": 8192, "vr_lamb": 16384}
    cells = []
    for shift, (optimizer, limit) in enumerate(limits.items()):
        for batch in ladder:
            beyond = batch / limit
            loss = -0.0005 * shift - (0.002 if beyond <= 1 else min(0.6, 0.008 * beyond**1.5))
            verdict = "accept" if beyond <= 1 else "inconclusive" if beyond <= 2 else "reject"
            if beyond > 4:
                cells.append(untested(batch, optimizer))
            else:
                cells.append(cell(batch, optimizer, loss, verdict, "confirmed" if beyond <= 1 else "exploratory"))
    best = {"batch_size": 16384, "optimizer": "vr_lamb", "recipe": recipe("vr_lamb", 16384, 0.128)}
    tried = [each for each in cells if each["mean"] is not None]
    curves = [curve(32, "adamw", 0.976)] + [curve(c["batch_size"], c["optimizer"], c["mean"]) for c in tried]
    changes: Any = {"cells": cells, "largest": best, "curves": curves, "batch_sizes": ladder, "optimizers": [*limits]}
    return full(**changes, **insights(tried), name="every-optimizer-on-a-ladder-of-ten-rungs")


def untested(batch_size: int, optimizer: str) -> dict[str, Any]:
    """A cell that the climb never reached."""
    nothing = {"values": [], "seeds": [], "mean": None, "std": None, "recipe": None, "samples_per_second": None}
    bounds = {"difference": None, "lower": None, "upper": None, "trials": 0}
    return cell(batch_size, optimizer, 0.0, "not tested", "not tested") | nothing | bounds


def one_cell() -> Result:
    """A single candidate, tuned with one trial, from a version that knew neither series nor trials."""
    only = cell(64, "adamw", -0.001, "accept", "confirmed", trials=1)
    best = {"batch_size": 64, "optimizer": "adamw", "recipe": only["recipe"]}
    old = [{key: value for key, value in curve(32, "adamw", 0.976).items() if key != "series"}]
    bare = {"tuning": [tuned(32, "adamw", 1)], "importances": [], "data_fingerprint": None}
    return full(cells=[only], largest=best, curves=old, optimizers=["adamw"], batch_sizes=[64], **bare)


def unusual_names() -> Result:
    """Names with markup, mathematics, percent signs and other scripts, and values of unusual size."""
    name = 'top-1 <b>&"acc\'s"</b> $x_1^2$ %s {0} \\frac 精度 🎯'
    result = full(metric=name, name="a & b <i>", pipeline="my.module:<Class>", command="tune --name 'a & b'")
    for arm in (result["reference"], result["control"], *result["cells"]):
        arm["values"] = [1e6 * value for value in arm["values"]]
        arm |= {key: 1e6 * arm[key] for key in ("mean", "std", "difference", "lower", "upper") if key in arm}
    return result | {"margin": 1e4, "curves": [], "tuning": [], "importances": []}


ALL = [
    full,
    interrupted,
    nothing_known,
    smaller_is_better,
    nothing_accepted,
    control_failed,
    many_cells,
    one_cell,
    unusual_names,
]
