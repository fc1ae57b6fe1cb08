"""The tables by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.reproduction import figures, pages, regression
from benchmarks.reproduction.arms import Arms
from benchmarks.reproduction.protocol import Found, Protocol, Run
from benchmarks.reproduction.protocols import (
    CLICKS,
    DIGITS,
    LABEL_NOISE,
    PERCEPTRON,
    PERCEPTRON_END,
    RESIDUAL,
    RESIDUAL_56,
    SETTINGS,
    SETTINGS_TRIED,
    SHRINKAGES,
)
from benchmarks.reproduction.results import Results

Draw = Callable[[Results, str], None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a table is made of and how it is shown."""

    about: str
    """One line for --help."""
    searches: Callable[[Run, str], Found]
    """Its searches, run one after the other on the folder of the data."""
    draw: Draw
    """Draws figure and page; takes the command to show."""
    needs_data: bool = True
    """Whether --data must be given."""


def table_named(name: str, *, gpu: bool = False) -> Table:
    """A table at the size of a CPU, or of the paper."""
    return (_GPU_TABLES if gpu and name in _GPU_TABLES else TABLES)[name]


def _grid(title: str, unit: str) -> Draw:
    def draw(results: Results, command: str) -> None:
        arms = Arms(results.seeds, scale=100)
        figures.grid_figure(arms, unit, results.figure)
        results.page.write_text(pages.grid_page(title, command, unit, arms))

    return draw


def _variants(title: str, unit: str) -> Draw:
    def draw(results: Results, command: str) -> None:
        arms = Arms(results.seeds, scale=100)
        figures.variants_figure(arms, results.figure)
        results.page.write_text(pages.variants_page(title, command, unit, arms))

    return draw


def _regression(results: Results, command: str) -> None:
    found = regression.measure(results.seeds, results.curves)
    figures.regression_figure(results.curves, found, results.figure)
    results.page.write_text(pages.regression_page(command, found))


def _limit(results: Results, command: str) -> None:
    figures.noise_figure(results.curves, results.limits, results.figure)
    results.page.write_text(pages.limit_page(command, results.limits))


def _residual_tables(protocol: Protocol, network: str) -> dict[str, Table]:
    top_1 = "top-1 accuracy, %"
    return {
        "residual_tuned": Table(
            about=f"{network}, four optimizers, every cell tuned alike, with controls",
            searches=protocol.equal_tuning,
            draw=_grid(f"{network}, every cell tuned alike", top_1),
        ),
        "table5": Table(
            about="the same with square-root scaling from the small batch that residual_tuned tunes",
            searches=protocol.scaled,
            draw=_grid(f"{network}, square-root scaling", top_1),
        ),
        "residual_too_high": Table(
            about="the same with SGD at 4 and 8 times the tuned rate",
            searches=lambda run, data: protocol.too_high(run, data, factors=(4, 8), seeds=8),
            draw=_grid(f"{network}, learning rates that are too high", top_1),
        ),
        "residual_limit": Table(
            about="the largest batch with SGD as a user would find it, beside the noise scale",
            searches=protocol.limit,
            draw=_limit,
        ),
    }


_GPU_TABLES = _residual_tables(RESIDUAL_56, "ResNet-56 on CIFAR-10")
TABLES: dict[str, Table] = {
    "linear_regression": Table(
        about="steps that VR-SGD saves, over its bounds and the number of groups",
        searches=lambda run, data: regression.searches(run),
        draw=_regression,
        needs_data=False,
    ),
    **_residual_tables(RESIDUAL, "ResNet-8 on 2,400 images of Fashion-MNIST"),
    "clicks_tuned": Table(
        about="DLRM on Census-Income, SGD, every cell tuned alike, with controls",
        searches=CLICKS.equal_tuning,
        draw=_grid("DLRM on Census-Income, every cell tuned alike", "AUC, %"),
    ),
    "table4": Table(
        about="the same with square-root scaling, from a quarter of the rate that clicks_tuned finds",
        searches=CLICKS.scaled,
        draw=_grid("DLRM on Census-Income, square-root scaling", "AUC, %"),
    ),
    "clicks_limit": Table(about="the largest batch, beside the noise scale", searches=CLICKS.limit, draw=_limit),
    "perceptron_tuned": Table(
        about="a perceptron on 20,000 images of Fashion-MNIST, every cell tuned alike, with controls",
        searches=PERCEPTRON.equal_tuning,
        draw=_grid("Perceptron on Fashion-MNIST, every cell tuned alike", "top-1 accuracy, %"),
    ),
    "perceptron_end": Table(
        about="the same at its largest batch alone, with 24 trials in place of 8",
        searches=PERCEPTRON_END.equal_tuning,
        draw=_grid("Perceptron on Fashion-MNIST, batch 10,000, 24 trials", "top-1 accuracy, %"),
    ),
    "perceptron_limit": Table(
        about="the largest batch, beside the noise scale", searches=PERCEPTRON.limit, draw=_limit
    ),
    "perceptron_settings": Table(
        about="the perceptron with Momentum at batch 1,024: other bounds and numbers of groups",
        searches=lambda run, data: SETTINGS.variants(run, data, SETTINGS_TRIED),
        draw=_variants("Perceptron on Fashion-MNIST, batch 1,024, other bounds and groups", "top-1 accuracy, %"),
    ),
    "label_noise": Table(
        about="the perceptron with 40 % wrong labels: scales that shrink, and weight decay",
        searches=lambda run, data: LABEL_NOISE.variants(run, data, SHRINKAGES),
        draw=_variants("Perceptron on Fashion-MNIST with 40 % label noise", "top-1 accuracy, %"),
    ),
    "digits_limit": Table(about="the same for the digits", searches=DIGITS.limit, draw=_limit, needs_data=False),
}
"""At the size of a CPU."""
