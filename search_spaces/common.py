"""Ranges the families share."""

from __future__ import annotations

import math
from typing import Any

from vrgd_ray import SpaceContext, Suggester


def suggest_learning_rate(trial: Suggester, context: SpaceContext, low: float, high: float) -> float:
    """From a fifth of the square-root-scaled reference rate to five times it, or twice the linearly scaled if more.

    Square root and linear scaling are the two rules of the literature (arXiv 1706.02677, arXiv 1904.00962); the best
    rate at a large batch usually lies between them. A reference of another family says nothing about this one: then
    low to high, scaled by the square root.
    """
    rate, ratio = context.reference.lr, context.batch_ratio
    if not context.same_family:
        return trial.suggest_float("lr", low * math.sqrt(ratio), high * math.sqrt(ratio), log=True)
    root = rate * math.sqrt(ratio)
    return trial.suggest_float("lr", root / 5, max(5 * root, 2 * rate * ratio), log=True)


def suggest_schedule(trial: Suggester, context: SpaceContext) -> dict[str, Any]:
    """Warm-up of up to a fifth of the run, then a cosine, a straight line to zero, no decay or the reference's."""
    schedules = dict.fromkeys(["cosine", "linear", "constant", context.reference.schedule])
    return {
        "warmup_fraction": trial.suggest_float("warmup_fraction", 0.0, 0.2),
        "schedule": trial.suggest_categorical("schedule", list(schedules)),
    }


def suggest_weight_decay(trial: Suggester, context: SpaceContext, low: float, high: float) -> float:
    """A tenth to ten times the reference's weight decay; low to high where it has none, or is of another family."""
    decay = context.reference.weight_decay if context.same_family else 0.0
    return trial.suggest_float("weight_decay", decay / 10 or low, decay * 10 or high, log=True)


def suggest_gsnr(trial: Suggester, context: SpaceContext, *, momentum: bool) -> dict[str, float]:
    """Bounds of the scale, and its momentum for the Adam kinds; nothing for a base optimizer.

    Lower bounds of 0.04 to 0.2 did best in arXiv 2309.13681 (figure on sensitivity to gamma), which fixes the upper
    bound at 1; above 1 the scale may also lengthen the step of quiet elements.
    """
    if not context.is_vr:
        return {}
    values = {
        "gsnr_lower": trial.suggest_float("gsnr_lower", 0.02, 0.5, log=True),
        "gsnr_upper": trial.suggest_float("gsnr_upper", 1.0, 5.0, log=True),
    }
    if momentum:
        values["gsnr_beta"] = trial.suggest_float("gsnr_beta", 0.5, 0.99)
    return values
