"""Where the gain of a variance-reduced optimizer comes from, told by its controls."""

from __future__ import annotations

from vrgd_ray.report.reading import VR_PREFIX, Result, optimizers

_BEATEN = ("better", "diverged")


def gain_sentence(result: Result) -> str:
    """One sentence on the controls of the VR cell that holds the claim; empty where none were trained."""
    controls = result.get("controls") or {}
    found = [(controls.get(role) or {}).get("verdict") for role in ("constant", "shuffled")]
    if not controls or "not tested" in found or None in found:
        return ""
    cell = f"{controls['batch_size']} with {controls['optimizer']}"
    based = str(controls["optimizer"]).removeprefix(VR_PREFIX) in optimizers(result)
    gain = f"What {cell} gains" if based else f"Whatever {cell} may gain"  # over its base
    if all(verdict in _BEATEN for verdict in found):
        return (
            f"{gain} comes from knowing which elements are noisy: with the layer's mean scale, and with the "
            "scale shuffled within the layer, the same seeds do worse."
        )
    if "equal" in found:
        role = "the layer's mean scale" if found[0] == "equal" else "the scale shuffled within the layer"
        return (
            f"{gain} comes from a shorter step and more decay, not from knowing which elements are noisy: "
            f"with {role} the same seeds do as well within the margin."
        )
    return (
        f"Whether {cell} gains by knowing which elements are noisy or by a shorter step and more decay cannot be "
        "told from these seeds."
    )
