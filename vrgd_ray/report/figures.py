"""All figures of the report in their order, each with the words it needs."""

from __future__ import annotations

from typing import NamedTuple

from vrgd_ray.report.cost_plot import steps_figure, time_figure
from vrgd_ray.report.curves_plot import learning_curves
from vrgd_ray.report.metric_plot import metric_by_batch
from vrgd_ray.report.reading import Result, shown_curves
from vrgd_ray.report.series_plots import noise_figure, scale_figures
from vrgd_ray.report.tuning_plots import importance_figure, parallel_figures


class Figure(NamedTuple):
    """A drawing with its title and caption, none of them escaped yet but the drawing."""

    svg: str
    title: str
    caption: str


METRIC = (
    "● accepted, □ inconclusive, ✖ rejected. Bars are the one-sided bounds of the difference from the reference: "
    "a batch is accepted when its whole bar lies on the good side of the dashed line."
)
STEPS = (
    "Trained: every run sees the same samples. Needed: steps to the reference's quality if the gradient noise scale N "
    "were all that counts, S = S_min (1 + N / batch), from the reference's run. The wider the gap between them, the "
    "more a loss is to be expected. Filled: the reference and the largest batch accepted."
)
TIME = (
    "At the speed measured on the machines of this search, evaluation left out. Needed: time to the reference's "
    "quality, as predicted for the steps, at the speed of the reference's optimizer."
)
CURVES = (
    "Mean over the confirmation seeds, for the configuration chosen at each batch size. The axis leaves out the worst "
    "fifth of the values, the start of training."
)
THINNED = " Of the reference and, for each optimizer, the last accepted batch and the next one; the rest is left out."
NOISE = (
    "The noise scale is the batch beyond which a larger one saves few steps: averaged since the start of training, "
    "corrected for drawing without replacement, with its 95 % interval. It fits SGD; for Adam and "
    "LAMB it is a rough guide."
)
IMPORTANCE = (
    "Functional ANOVA over all trials of an optimizer, ranked within their batch size, the learning rate relative to "
    "the square root of the batch. A hint: with few trials, noise is shared out among the fields as well."
)
PARALLEL = (
    "Each line is a trial, from its batch size down to its metric; the best of each batch size is thick, in the "
    "batch's colour; dotted ones have no final metric: they diverged, failed or were stopped early."
)
SCALE = (
    "1 leaves the gradient as it is. Mean scale of each layer: its median over layers, and the band that holds 8 of 10 "
    "layers; medians over the confirmation seeds."
)


def figures(result: Result) -> list[Figure]:
    """Every figure there is something to draw for."""
    thinned = THINNED if len(shown_curves(result)) < len(result.get("curves") or []) else ""
    drawn = [
        Figure(metric_by_batch(result), "Test metric against batch size", METRIC),
        Figure(learning_curves(result), "Learning curves", CURVES + thinned),
        Figure(steps_figure(result), "Steps", STEPS),
        Figure(time_figure(result), "Time", TIME),
        Figure(noise_figure(result), "Predicted useful batch", NOISE),
        Figure(importance_figure(result), "Which hyper-parameters mattered", IMPORTANCE),
        *(Figure(svg, f"Trials of {name}", PARALLEL) for name, svg in parallel_figures(result)),
        *(Figure(svg, f"Scale of the gradient, {name}", SCALE) for name, svg in scale_figures(result)),
    ]
    return [figure for figure in drawn if figure.svg]
