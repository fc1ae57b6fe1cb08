"""A workload under the protocols that compare base and VR optimizers: which searches those are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.reproduction.searches import Result, Search, as_yaml
from benchmarks.reproduction.variants import CONTROL_VARIANTS, USUAL, Variant
from vrgd_ray.optim.registry import hyperparameters

Run = Callable[[Search], Result]
Found = Iterator[tuple[Search, Result]]
FACTORY = "benchmarks.reproduction.workload:workload"
_TUNED = ("lr", "weight_decay", "momentum")
_PAPER_BOUNDS = {"gsnr_lower": 0.1, "gsnr_upper": 1.0, "gsnr_beta": 0.9}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One workload, tuned equally at some batch sizes and scaled by the square root over all of them."""

    name: str
    """What its searches are called."""
    pipeline: str
    """Pipeline of the package."""
    arguments: Mapping[str, Any]
    """Arguments of its constructor, besides the data."""
    families: Mapping[str, Mapping[str, Any]]
    """For each base optimizer, where its tuning begins at the smallest batch."""
    batch_sizes: tuple[int, ...]
    """The ladder, the small batch first, its end at most half of the training set."""
    tuned_batch_sizes: tuple[int, ...]
    """Rungs with a tuning of their own."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What all recipes share: length, schedule."""
    reads_data: bool = True
    """Whether the pipeline takes `data`."""
    controls: bool = True
    """Whether the constant and shuffled scale are tuned at the end of the ladder."""
    scaled_from: float = 1.0
    """Share of the tuned small-batch rate that the scaled table starts from; below 1 where that lies at the edge."""
    margin: float = 0.01
    """Loss that a search for the limit accepts, in units of the metric."""
    trials: int = 8
    """Trials in a tuned cell."""
    seeds: int = 5
    """Fresh seeds of every cell."""

    def equal_tuning(self, run: Run, data: str) -> Found:
        """Every arm tuned alike, each cell from the same beginning; the controls at the end of the ladder."""
        for family in self.families:
            searches = [self._tuned(family, USUAL, self.tuned_batch_sizes, data)]
            if self.controls:
                last = self.tuned_batch_sizes[-1:]
                searches += [self._tuned(family, control, last, data) for control in CONTROL_VARIANTS]
            for search in searches:
                yield search, run(search)

    def variants(self, run: Run, data: str, variants: Iterable[Variant]) -> Found:
        """The first family at the smallest batch under other settings, each tuned alike, its base too."""
        family = next(iter(self.families))
        for variant in variants:
            search = self._tuned(family, variant, self.batch_sizes[:1], data)
            yield search, run(search)

    def scaled(self, run: Run, data: str) -> Found:
        """Tuned at the small batch, then scaled from there; the tuning is that of `equal_tuning`."""
        for family in self.families:
            small = run(self._tuned(family, USUAL, self.tuned_batch_sizes, data))["reference"]["recipe"]
            tuned = {name: small[name] for name in _TUNED} | {"lr": self.scaled_from * small["lr"]}
            search = self._scaled(family, tuned, data)
            yield search, run(search)

    def limit(self, run: Run, data: str) -> Found:
        """The largest batch of the first family, base and VR, found as a user would."""
        family = next(iter(self.families))
        words = self._common(
            family, self.families[family], data, self.batch_sizes, f"{family},vr_{family}", self.trials
        )
        verdict = ("--margin", f"{self.margin:g}", "--seeds", str(max(5, self.seeds)))
        search = Search(name=f"{self.name}_limit", family=family, arguments=(*words, *verdict))
        yield search, run(search)

    def too_high(self, run: Run, data: str, factors: Sequence[int], seeds: int) -> Found:
        """The tuned small-batch rate of the first family times a factor, at the small batch and the next tuned one.

        seeds: fresh seeds; where training is about to fail they differ more than elsewhere.
        """
        family = next(iter(self.families))
        small = run(self._tuned(family, USUAL, self.tuned_batch_sizes, data))["reference"]["recipe"]
        for factor in factors:
            changes = {**{name: small[name] for name in _TUNED}, "lr": factor * small["lr"]}
            rungs, label = self.tuned_batch_sizes[:2], f"rate_times_{factor}"
            search = replace(self, seeds=seeds)._scaled(family, changes, data, rungs, label)
            yield replace(search, family=f"{family}, {factor} times the rate"), run(search)

    def _tuned(self, family: str, variant: Variant, batch_sizes: tuple[int, ...], data: str) -> Search:
        vr = f"vr_{family}"
        optimizers = f"{family},{vr}" if variant == USUAL else vr
        shared = {name: self.recipe[name] for name in ("schedule", "warmup_fraction") if name in self.recipe}
        settings = {**shared, **_used(family), **variant.settings}
        return Search(
            name=f"{self.name}_tuned_{family}_{variant.name}",
            family=family,
            variant=variant.name,
            base=variant.base,
            arguments=(
                *self._common(family, self.families[family], data, batch_sizes, optimizers, self.trials),
                *self._grid,
                "--no-warm-start",
                "--no-prune",
                *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            ),
        )

    def _scaled(
        self,
        family: str,
        tuned: Mapping[str, Any],
        data: str,
        batch_sizes: tuple[int, ...] = (),
        label: str = "scaled",
    ) -> Search:
        optimizers, rungs = f"{family},vr_{family}", batch_sizes or self.batch_sizes
        arguments = self._common(family, tuned, data, rungs, optimizers, trials=1, scaled=True)
        return Search(name=f"{self.name}_{label}_{family}", family=family, arguments=(*arguments, *self._grid))

    def _common(
        self,
        family: str,
        values: Mapping[str, Any],
        data: str,
        batch_sizes: tuple[int, ...],
        optimizers: str,
        trials: int,
        **extra: Any,
    ) -> tuple[str, ...]:
        reference = {"optimizer": family, "batch_size": self.batch_sizes[0], **self.recipe, **_PAPER_BOUNDS, **values}
        given = {"pipeline": self.pipeline, **self.arguments, "reference": reference, **extra}
        given |= {"data": data} if self.reads_data else {}
        return (
            *("--pipeline", FACTORY),
            *("--pipeline-args", *(f"{name}={as_yaml(value)}" for name, value in given.items())),
            *("--batch-sizes", ",".join(map(str, batch_sizes))),
            *("--optimizers", optimizers),
            *("--trials", str(trials), "--no-controls"),
        )

    @property
    def _grid(self) -> tuple[str, ...]:
        """A table instead of a search."""
        return "--full-grid", "--seeds", str(self.seeds)


def _used(family: str) -> dict[str, Any]:
    """The paper's bounds, fixed, as far as the family has them."""
    return {name: value for name, value in _PAPER_BOUNDS.items() if name in hyperparameters(f"vr_{family}")}
