"""What the search found, in plain sentences that claim no more than was shown."""

from __future__ import annotations

from vrgd_ray.report.gain import gain_sentence
from vrgd_ray.report.reading import (
    VERDICTS,
    VR_PREFIX,
    Cell,
    Result,
    accepted,
    bounds,
    confirmed_limit,
    control_trouble,
    control_untested,
    find_cell,
    optimizers,
    reference_batch,
    reference_mean,
    rejection,
    sorted_cells,
)
from vrgd_ray.report.table import verdict_words
from vrgd_ray.report.units import Units, count, times

FEWEST_TRIALS = 8
"""Trials in a cell below which the report warns: the first two only rescale the reference's learning rate."""

FEWEST_SEEDS = 5
"""Seeds at the first look below which the report warns."""

NO_VERDICT = "No verdict"


def summary_sentence(result: Result) -> str:
    """The verdict of the search, followed by what qualifies it (interrupted, failed control, open upper end)."""
    return " ".join([headline(result), *caveats(result)])


def headline(result: Result) -> str:
    """The verdict in one sentence."""
    verdict, doubt = _verdict(result), _doubt(result)
    if not doubt or verdict.startswith(NO_VERDICT):
        return verdict
    return f"Not reliable, because {doubt}: {verdict[0].lower()}{verdict[1:]}"


def _doubt(result: Result) -> str:
    """What takes every verdict back; empty where nothing does."""
    if result.get("status") == "failed":
        return "the search failed"
    if control_trouble(result) == "error":
        return "the control could not be trained"
    return "the control failed" if control_trouble(result) else ""


def _verdict(result: Result) -> str:
    if reference_mean(result) is None:
        return f"{NO_VERDICT}: the reference has not been trained."
    largest, start = result.get("largest"), reference_batch(result)
    if not largest or (start is not None and largest["batch_size"] <= start):
        return _nothing_accepted(result)
    cell = find_cell(result, largest["batch_size"], largest["optimizer"]) or {}
    return f"Largest batch without loss: {_name(largest)} ({_comparison(result, cell)}){_saving(result, cell)}."


def caveats(result: Result) -> list[str]:
    """Sentences without which the headline would say too much; empty for a clean search."""
    found = [
        _status_sentence(result),
        control_sentence(result) if control_untested(result) else "",
        _broken_sentence(result),
        _unusable_sentence(result),
        _continued_sentence(result),
        _open_end(result),
        _exploratory_sentence(result),
        _no_spread_sentence(result),
        _thin_tuning_sentence(result),
        _few_seeds_sentence(result),
    ]
    failed = control_sentence(result) if control_trouble(result) else ""
    return [sentence for sentence in (failed, *found) if sentence]


def control_sentence(result: Result) -> str:
    """The outcome of testing the reference against itself with other seeds."""
    control, trouble = result.get("control") or {}, control_trouble(result)
    if trouble == "not accepted":
        return _margin_too_tight(result)
    if trouble == "error":
        return (
            f"The control could not be trained ({str(control['reason']).rstrip('.')}), so whether the margin suits the "
            "spread over seeds is not known; --resume tries again."
        )
    if trouble is not None:
        what = "diverged, so the reference is not stable" if trouble == "diverged" else "diverged or met an error"
        return f"The control failed: a seed of the reference {what}, and no verdict here is reliable."
    if control.get("verdict") == "accept":
        return "The control passed: the reference is accepted against itself with other seeds."
    return (
        "The control (the reference against itself with other seeds) was not tested, so whether the margin suits the "
        "spread over seeds is not known."
    )


def _margin_too_tight(result: Result) -> str:
    failed = "The control failed: the reference is not accepted against itself with other seeds"
    if result.get("paired"):
        return (
            f"{failed}. Batches were compared seed by seed, where what seeds share cancels; read their intervals, and "
            "take the verdict with care."
        )
    return (
        f"{failed}, so the margin of {Units.of(result).margin(result)} is too tight for these seeds and no verdict "
        "here is reliable."
    )


def scale_sentence(result: Result) -> str:
    """Whether each variance-reduced optimizer moved the limit of its base, and by how much."""
    pairs = [name for name in optimizers(result) if name.startswith(VR_PREFIX)]
    if not pairs:
        return "No variance-reduced optimizer was compared."
    if doubt := _doubt(result):
        return f"Whether {_listed(pairs)} moves the limit cannot be told: {doubt}."
    so_far = "" if result.get("status", "finished") == "finished" else "So far: "
    moved = so_far + " ".join(_moved(result, name, name.removeprefix(VR_PREFIX)) for name in pairs)
    return f"{moved} {gain_sentence(result)}".rstrip()


def _comparison(result: Result, cell: Cell) -> str:
    units, start = Units.of(result), reference_batch(result)
    margin = f"margin {units.margin(result)}"
    found = bounds(cell)
    if found is None:
        return margin
    lower, centre, upper = map(units.difference, found)
    mean = units.value(cell.get("mean"))
    return f"{result.get('metric')} {mean}, difference {centre} [{lower}, {upper}] to batch {start}, {margin}"


def _saving(result: Result, cell: Cell) -> str:
    steps, before = cell.get("steps"), (result.get("reference") or {}).get("steps")
    if not steps or not before:
        return ""
    return f": {count(steps)} steps instead of {count(before)}, {times(before / steps)} fewer"


def _nothing_accepted(result: Result) -> str:
    start = reference_batch(result)
    tested = [cell for cell in sorted_cells(result) if cell.get("verdict") in VERDICTS]
    above = [cell for cell in tested if cell["batch_size"] > (start or 0)]
    if not above:
        return f"{NO_VERDICT}: no batch above {start} has been tested to the end."
    if any(accepted(cell, "confirmed") for cell in above):
        return f"No batch above {start} is claimed: a seed of the reference, which all were compared with, failed."
    what, first = "was accepted within the margin: the smallest tested", above[0]
    if any(accepted(cell) for cell in above):  # beyond a failure, maybe one at the reference's own batch
        what = "is claimed: the smallest that was not accepted"
        first = next(cell for cell in tested if not accepted(cell))
    return f"No batch above {start} {what}, {_name(first)}, was {verdict_words(first)} ({_comparison(result, first)})."


def _status_sentence(result: Result) -> str:
    status, reason = result.get("status", "finished"), result.get("reason")
    if status == "finished":
        return ""
    why = f" ({str(reason).rstrip('.')})" if reason else ""
    return f"The search {'failed' if status == 'failed' else f'was {status}'} before its end{why}; so much is known."


def _broken_sentence(result: Result) -> str:
    """What could not be trained says nothing of accuracy; memory, most often, ends a ladder like that."""
    found = [
        f"{_name(cell)} could not be trained ({str(cell['reason']).rstrip('.')})"
        for cell in sorted_cells(result)
        if rejection(cell) == "error"
    ]
    return f"{_listed(found)}; that says nothing of its accuracy, and --resume tries again." if found else ""


def _unusable_sentence(result: Result) -> str:
    """A cell without a recipe to compare, for more than one cause."""
    cells = [cell for cell in sorted_cells(result) if rejection(cell) == "none usable"]
    if not cells:
        return ""
    found = [f"{_name(cell)} was rejected without a comparison ({str(cell['reason']).rstrip('.')})" for cell in cells]
    again = "; --resume tries again what an error broke" if any(cell.get("broken") for cell in cells) else ""
    return f"{_listed(found)}{again}."


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
    ours, theirs = confirmed_limit(result, name) or 0, confirmed_limit(result, base) or 0
    ended = _end(result, name, ours)
    if ours <= theirs and ended and rejection(ended) == "error":
        return f"Whether {name} moves the limit is not known: {_name(ended)} could not be trained."
    if max(ours, theirs) <= start:
        return f"{name} did not move the limit: neither it nor {base} was accepted above batch {start}."
    if ours > theirs:
        reached = f"up to {theirs}" if theirs else "at none"
        return f"{name} was accepted up to batch {ours}, {base} {reached}: {_limit(result, base, theirs)}."
    if ours < theirs:
        return f"{name} did not move the limit: {theirs} with {base}, while {_limit(result, name, ours)}."
    return f"{name} did not move the limit: {ours} with either optimizer{_side_by_side(result, ours, name, base)}."


def _limit(result: Result, optimizer: str, limit: int) -> str:
    """What ended an optimizer's climb; not being accepted is not the same as being worse."""
    first = _end(result, optimizer, limit)
    if first is None:
        return f"{optimizer} was not tested beyond {limit}"
    if rejection(first) == "error":
        return f"{_name(first)} could not be trained, which says nothing of its accuracy"
    text = f"{_name(first)} was {verdict_words(first)}"
    return f"{text}, which does not mean that it is worse" if first["verdict"] == "inconclusive" else text


def _end(result: Result, optimizer: str, limit: int) -> Cell | None:
    """The first batch beyond an optimizer's limit that was not accepted; None where none was tested."""
    own = [c for c in sorted_cells(result) if c["optimizer"] == optimizer and c["batch_size"] > limit]
    return next((c for c in own if c.get("verdict") in VERDICTS and not accepted(c)), None)


def _tested(result: Result, optimizer: str) -> bool:
    return any(c["optimizer"] == optimizer and c.get("verdict") in VERDICTS for c in sorted_cells(result))


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
