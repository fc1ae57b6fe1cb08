"""LAMB and its VR twin: learning rate, schedule, weight decay, GSNR bounds."""

from __future__ import annotations

from typing import Any

from search_spaces.common import suggest_gsnr, suggest_learning_rate, suggest_schedule, suggest_weight_decay
from vrgd_ray import SpaceContext, Suggester


def suggest(trial: Suggester, context: SpaceContext) -> dict[str, Any]:
    """One trial's values of recipe fields."""
    return {
        "lr": suggest_learning_rate(trial, context, 1e-3, 1e-1),
        "weight_decay": suggest_weight_decay(trial, context, 1e-4, 1e-1),
        **suggest_schedule(trial, context),
        **suggest_gsnr(trial, context, momentum=True),
    }
