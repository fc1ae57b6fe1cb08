"""The numbers of a table as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.reproduction.arms import Arm, Arms
from benchmarks.reproduction.intervals import Interval
from benchmarks.reproduction.regression import Measured
from benchmarks.reproduction.rows import Row
from vrgd_ray.limit.scale_controls import CONTROLS

_HEAD = ("optimizer", "batch size", "base", "VR", "VR - base", "rate of base", "rate of VR")


def grid_page(title: str, command: str, unit: str, arms: Arms) -> str:
    """Base and VR at every batch size, the differences, and the controls where they were trained."""
    lines = [
        f"# {title}",
        "",
        f"`{command}`",
        "",
        f"{unit}, mean ± standard deviation over {_seeds(arms)} fresh seeds on test data. Differences are paired by "
        "seed; ± is half of their 95 % interval, the spread pooled over the rows of a batch size.",
        "",
        *_table(_HEAD, (_row(arms, family, b) for family in arms.families for b in arms.batch_sizes(family))),
        *_mean_lines(arms),
    ]
    controls = [_control_row(arms, f, b) for f in arms.families for b in arms.batch_sizes(f, CONTROLS[0])]
    if controls:
        head = ("optimizer", "batch size", *CONTROLS, *(f"VR - {name}" for name in CONTROLS))
        lines += ["", "With a scale that does not know which elements are noisy:", "", *_table(head, controls)]
    return "\n".join([*lines, ""])


def variants_page(title: str, command: str, unit: str, arms: Arms) -> str:
    """Every variant of one optimizer at one batch size, and what it is above its base."""
    family = arms.families[0]
    differences = arms.differences(family, next(iter(arms.values)).batch_size)
    rows = (
        (arm.variant, arms.words(arm), _interval(differences.get(arm.variant)), _rate(arms.rates[arm]))
        for arm in arms.values
    )
    return "\n".join(
        [
            f"# {title}",
            "",
            f"`{command}`",
            "",
            f"{unit}, mean ± standard deviation over {_seeds(arms)} fresh seeds on test data. Differences are paired "
            "by seed; ± is half of their 95 % interval, the spread pooled over the rows.",
            "",
            *_table((family, unit, "minus base", "rate"), rows),
            "",
        ]
    )


def regression_page(command: str, found: Sequence[Measured]) -> str:
    """Final losses and the step at which VR-SGD is where SGD ends."""
    head = ("gsnr_lower", "gsnr_upper", "num_groups", "SGD's test loss", "VR-SGD's", "step at which it is SGD's last")
    rows = (
        (
            *(f"{value:g}" for value in (each.gsnr_lower, each.gsnr_upper, each.num_groups)),
            *(f"{loss:.2e}" if loss is not None else "diverged" for loss in (each.base_loss, each.vr_loss)),
            "never" if each.step is None else f"{each.step:.0f} of 100",
        )
        for each in found
    )
    return "\n".join(
        [
            "# Linear regression",
            "",
            f"`{command}`",
            "",
            "Ten weights from zero, batch 2,048, 100 steps that see every sample once, targets without noise, both "
            "learning rates tuned (12 trials). Test loss: geometric mean over 5 fresh seeds. Steps: from the "
            "validation loss, averaged over the seeds, between ten evaluations by interpolation of its logarithm.",
            "",
            *_table(head, rows),
            "",
        ]
    )


def limit_page(command: str, found: Sequence[Row]) -> str:
    """The gradient noise scale beside the largest batch that was accepted."""
    head = ("optimizer", "largest accepted batch", "margin")
    first = found[0]
    noise = first["noise_scale"]
    lines = [
        f"# The largest batch of {first['search'].removesuffix('_limit')} beside its gradient noise scale",
        "",
        f"`{command}`",
        "",
        f"Gradient noise scale of the tuned reference (batch {first['reference_batch_size']}): "
        f"{'not resolved' if noise is None else f'{noise:.0f} samples'}. Ladder up to {first['largest_tried']}.",
        "",
    ]
    rows = (
        (
            row["optimizer"],
            "none above the reference's" if row["largest_accepted"] is None else str(row["largest_accepted"]),
            f"{100 * row['margin']:g} {'% of the metric' if row['relative_margin'] else 'points'}",
        )
        for row in found
    )
    return "\n".join([*lines, *_table(head, rows), ""])


def _row(arms: Arms, family: str, batch_size: int) -> tuple[str, ...]:
    base, vr = (Arm(family, variant, batch_size) for variant in ("base", "vr"))
    return (
        family,
        str(batch_size),
        arms.words(base),
        arms.words(vr),
        _interval(arms.difference(family, batch_size)),
        *(_rate(arms.rates.get(arm)) for arm in (base, vr)),
    )


def _control_row(arms: Arms, family: str, batch_size: int) -> tuple[str, ...]:
    return (
        family,
        str(batch_size),
        *(arms.words(Arm(family, name, batch_size)) for name in CONTROLS),
        *(_interval(arms.difference(family, batch_size, other=name)) for name in CONTROLS),
    )


def _seeds(arms: Arms) -> str:
    counts = sorted({len(values) for values in arms.values.values() if values})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _mean_lines(arms: Arms) -> list[str]:
    """Averages over the optimizers, where there are several, below the table."""
    if len(arms.families) == 1:
        return []
    batch_sizes = sorted({arm.batch_size for arm in arms.values if arm.variant == "vr"})
    means = [(batch_size, arms.over_families(batch_size)) for batch_size in batch_sizes]
    listed = "; ".join(f"{mean} at {batch_size}" for batch_size, mean in means if mean is not None)
    return ["", f"VR - base averaged over the rows of a batch size: {listed}."]


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else str(interval)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]
