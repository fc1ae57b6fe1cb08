"""What the search found, in plain sentences that claim no more than was shown."""

from __future__ import annotations

from vrgd_ray.report.gain import gain_sentence
from vrgd_ray.report.reading import (
    VR_PREFIX,
    Cell,
    Result,
    accepted,
    broken,
    confirmed_limit,
    control_failed,
    find_cell,
    optimizers,
    reference_batch,
    reference_mean,
    sorted_cells,
)
from vrgd_ray.report.table import verdict_words
from vrgd_ray.report.units import Units, count, times

FEWEST_TRIALS = 8
"""Trials in a cell below which the report warns: the first two only rescale the reference's learning rate."""

FEWEST_SEEDS = 5
"""Seeds at the first look below which the report warns."""


def summary_sentence(result: Result) -> str:
    """The verdict of the search, followed by what qualifies it (interrupted, failed control, open upper end)."""
    return " ".join([headline(result), *caveats(result)])


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    verdict = _verdict(result)
    if control_failed(result):
        return f"Not reliable, because the control failed: {verdict[0].lower()}{verdict[1:]}"
    return verdict


def _verdict(result: Result) -> str:
    if reference_mean(result) is None:
        return "No verdict: the reference has not been trained."
    largest, start = result.get("largest"), reference_batch(result)
    if not largest or (start is not None and largest["batch_size"] <= start):
        return _nothing_accepted(result)
    cell = find_cell(result, largest["batch_size"], largest["optimizer"]) or {}
    return f"Largest batch without loss: {_name(largest)} ({_comparison(result, cell)}){_saving(result, cell)}."


def caveats(result: Result) -> list[str]:
    """Sentences without which the headline would say too much; empty for a clean search."""
    found = [
        _status_sentence(result),
        _broken_sentence(result),
        _continued_sentence(result),
        _open_end(result),
        _exploratory_sentence(result),
        _no_spread_sentence(result),
        _thin_tuning_sentence(result),
        _few_seeds_sentence(result),
    ]
    failed = control_sentence(result) if control_failed(result) else ""
    return [sentence for sentence in (failed, *found) if sentence]


def control_sentence(result: Result) -> str:
    """The outcome of testing the reference against itself with other seeds."""
    control = result.get("control") or {}
    if control_failed(result) and control.get("difference") is None:
        return (
            "The control failed: a seed of the reference diverged, so the reference is not stable and no verdict here "
            "is reliable."
        )
    if control_failed(result) and result.get("paired"):
        return (
            "The control failed: the reference is not accepted against itself with other seeds. Batches were compared "
            "seed by seed, where what seeds share cancels; read their intervals, and take the verdict with care."
        )
    if control_failed(result):
        return (
            f"The control failed: the reference is not accepted against itself with other seeds, so the margin of "
            f"{Units.of(result).margin(result)} is too tight for these seeds and no verdict here is reliable."
        )
    if control.get("verdict") == "accept":
        return "The control passed: the reference is accepted against itself with other seeds."
    return "The control (the reference against itself with other seeds) was not tested."


def scale_sentence(result: Result) -> str:
    """Whether each variance-reduced optimizer moved the limit of its base, and by how much."""
    pairs = [name for name in optimizers(result) if name.startswith(VR_PREFIX)]
    if not pairs:
        return "No variance-reduced optimizer was compared."
    if control_failed(result):
        return f"Whether {_listed(pairs)} moves the limit cannot be told: the margin is too tight for the seeds."
    if result.get("status") == "failed":
        return f"Whether {_listed(pairs)} moves the limit cannot be told: the search failed."
    so_far = "" if result.get("status", "finished") == "finished" else "So far: "
    moved = so_far + " ".join(_moved(result, name, name.removeprefix(VR_PREFIX)) for name in pairs)
    return f"{moved} {gain_sentence(result)}".rstrip()


def _comparison(result: Result, cell: Cell) -> str:
    units, start = Units.of(result), reference_batch(result)
    margin = f"margin {units.margin(result)}"
    if cell.get("difference") is None:
        return f"{result.get('metric')} {units.value(cell.get('mean'))}, {margin}"
    centre, lower, upper = (units.difference(cell[key]) for key in ("difference", "lower", "upper"))
    mean = units.value(cell.get("mean"))
    return f"{result.get('metric')} {mean}, difference {centre} [{lower}, {upper}] to batch {start}, {margin}"


def _saving(result: Result, cell: Cell) -> str:
    steps, before = cell.get("steps"), (result.get("reference") or {}).get("steps")
    if not steps or not before:
        return ""
    return f": {count(steps)} steps instead of {count(before)}, {times(before / steps)} fewer"


def _nothing_accepted(result: Result) -> str:
    start, units = reference_batch(result), Units.of(result)
    above = [cell for cell in sorted_cells(result) if cell["batch_size"] > (start or 0)]
    tested = [cell for cell in above if cell.get("verdict") not in (None, "not tested")]
    if not tested:
        return f"No verdict: no batch above {start} has been tested."
    if any(accepted(cell, "confirmed") for cell in above):
        return f"No batch above {start} is claimed: a seed of the reference, which all were compared with, failed."
    first = tested[0]
    values = f"{_comparison(result, first)}" if first.get("mean") is not None else f"margin {units.margin(result)}"
    return (
        f"No batch above {start} was accepted within the margin: the smallest tested, {_name(first)}, "
        f"was {verdict_words(first)} ({values})."
    )


def _status_sentence(result: Result) -> str:
    status, reason = result.get("status", "finished"), result.get("reason")
    if status == "finished":
        return ""
    why = f" ({str(reason).rstrip('.')})" if reason else ""
    return f"The search {'failed' if status == 'failed' else f'was {status}'} before its end{why}; so much is known."


def _broken_sentence(result: Result) -> str:
    """What could not be trained says nothing of accuracy; memory, most often, ends a ladder like that."""
    found = [
        f"{_name(cell)} could not be trained ({error.rstrip('.')})"
        for cell in sorted_cells(result)
        if (error := broken(cell))
    ]
    return f"{_listed(found)}; that says nothing of its accuracy, and --resume tries again." if found else ""


def _continued_sentence(result: Result) -> str:
    times_continued, total = result.get("continuation"), result.get("alpha_total")
    if not times_continued or total is None:
        return ""
    return (
        f"The search was continued after a verdict had been seen, at a level of {100 * result['alpha']:.3g} %; over "
        f"all its verdicts the chance of a wrong claim is {100 * total:.3g} %."
    )


def _thin_tuning_sentence(result: Result) -> str:
    trials = (result.get("reference") or {}).get("trials")
    if trials is None or trials >= FEWEST_TRIALS or result.get("status", "finished") != "finished":
        return ""
    only = f"{trials} trial{'s' if trials > 1 else ''} only"
    return f"Each cell was tuned with {only}: below {FEWEST_TRIALS}, luck in tuning can look like a loss."


def _few_seeds_sentence(result: Result) -> str:
    """A t test on two or three seeds stands and falls with the normal distribution."""
    looks = result.get("looks") or []
    if not looks or min(looks) >= FEWEST_SEEDS or reference_mean(result) is None:
        return ""
    return (
        f"With {min(looks)} seeds at the first look the test leans on seeds that spread normally: one bad seed in five "
        "would go unseen."
    )


def _no_spread_sentence(result: Result) -> str:
    names = [_name(cell) for cell in sorted_cells(result) if cell.get("degenerate")]
    if not names:
        return ""
    what = "No pair of seeds differed by another amount" if result.get("paired") else "No seed differed from another"
    return f"{what} for {_listed(names)}, so the verdict rests on the bare difference."


def _open_end(result: Result) -> str:
    largest, ladder = result.get("largest"), result.get("batch_sizes") or []
    if largest and ladder and largest["batch_size"] == max(ladder):
        return "This is the largest batch that was tried, so the limit may lie higher."
    return ""


def _exploratory_sentence(result: Result) -> str:
    beyond = [cell for cell in sorted_cells(result) if accepted(cell, "exploratory")]
    names = [_name(cell) for cell in beyond]
    if not names:
        return ""
    return f"Beyond a batch that was not accepted, {_listed(names)} passed as well; that is a hint, not a claim."


def _moved(result: Result, name: str, base: str) -> str:
    if base not in optimizers(result):
        return f"{name} was searched without its base {base}, so whether it moves the limit is not known."
    if not _tested(result, name) or not _tested(result, base):
        return f"{name} and {base} have not both been tested, so whether {name} moves the limit is not known."
    start = reference_batch(result) or 0
    ours, theirs = confirmed_limit(result, name) or start, confirmed_limit(result, base) or start
    if ours == theirs == start:
        return f"{name} did not move the limit: neither it nor {base} was accepted above batch {start}."
    if ours > theirs:
        return f"{name} was accepted up to batch {ours}, {base} up to {theirs}: {_limit(result, base, theirs)}."
    if ours < theirs:
        return f"{name} did not move the limit: {theirs} with {base}, while {_limit(result, name, ours)}."
    return f"{name} did not move the limit: {ours} with either optimizer{_side_by_side(result, ours, name, base)}."


def _limit(result: Result, optimizer: str, limit: int) -> str:
    """What ended an optimizer's climb; not being accepted is not the same as being worse."""
    beyond = [c for c in sorted_cells(result) if c["optimizer"] == optimizer and not accepted(c, "confirmed")]
    first = next((c for c in beyond if c.get("verdict") not in (None, "not tested")), None)
    if first is None:
        return f"{optimizer} was not tested beyond {limit}"
    text = f"{_name(first)} was {verdict_words(first)}"
    return f"{text}, which does not mean that it is worse" if first["verdict"] == "inconclusive" else text


def _tested(result: Result, optimizer: str) -> bool:
    return any(
        c["optimizer"] == optimizer and c.get("verdict") not in (None, "not tested") for c in sorted_cells(result)
    )


def _side_by_side(result: Result, batch: int, name: str, base: str) -> str:
    ours, theirs = find_cell(result, batch, name), find_cell(result, batch, base)
    if not ours or not theirs or ours.get("mean") is None or theirs.get("mean") is None:
        return ""
    units = Units.of(result)
    return f" ({result.get('metric')} {units.value(ours['mean'])} against {units.value(theirs['mean'])})"


def _name(cell: Cell) -> str:
    return f"{cell['batch_size']} with {cell['optimizer']}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
