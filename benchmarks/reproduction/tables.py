"""The tables: which searches each consists of. A table is a function of the data's folder and the size of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.reproduction.searches import Result, Search, as_yaml

Run = Callable[[Search], Result]
Found = Iterator[tuple[Search, Result]]
_FACTORY = "benchmarks.reproduction.workload:workload"
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
    controls: bool = True
    """Whether the constant and shuffled scale are tuned at the end of the ladder."""
    margin: float = 0.01
    """Loss that a search for the limit accepts, in units of the metric."""
    trials: int = 8
    """Trials in a tuned cell."""
    seeds: int = 5
    """Fresh seeds of every cell."""

    def equal_tuning(self, run: Run, data: str) -> Found:
        """Every arm tuned alike, each cell from the same beginning; the controls at the end of the ladder."""
        for family in self.families:
            arms = {"vr": self.tuned_batch_sizes}
            if self.controls:
                arms |= dict.fromkeys(("constant", "shuffled"), self.tuned_batch_sizes[-1:])
            for variant, batch_sizes in arms.items():
                search = self._tuned(family, variant, batch_sizes, data)
                yield search, run(search)

    def scaled(self, run: Run, data: str) -> Found:
        """Tuned at the small batch, then scaled; the tuning is that of `equal_tuning`."""
        for family in self.families:
            small = run(self._tuned(family, "vr", self.tuned_batch_sizes, data))["reference"]["recipe"]
            search = self._scaled(family, {name: small[name] for name in _TUNED}, data)
            yield search, run(search)

    def limit(self, run: Run, data: str) -> Found:
        """The largest batch of the first family, base and VR, found as a user would."""
        family = next(iter(self.families))
        words = self._common(
            family, self.families[family], data, self.batch_sizes, f"{family},vr_{family}", self.trials
        )
        search = Search(
            name=f"{self.name}_limit",
            family=family,
            arguments=(*(w for w in words if w != "--full-grid"), "--margin", f"{self.margin:g}"),
        )
        yield search, run(search)

    def too_high(self, run: Run, data: str, family: str, batch_size: int, factors: Sequence[int]) -> Found:
        """The tuned small-batch rate of one family times a factor, at the small batch and another one."""
        small = run(self._tuned(family, "vr", self.tuned_batch_sizes, data))["reference"]["recipe"]
        for factor in factors:
            changes = {**{name: small[name] for name in _TUNED}, "lr": factor * small["lr"]}
            search = self._scaled(family, changes, data, (self.batch_sizes[0], batch_size), f"rate_times_{factor}")
            yield search, run(search)

    def _tuned(self, family: str, variant: str, batch_sizes: tuple[int, ...], data: str) -> Search:
        vr = f"vr_{family}"
        optimizers = f"{family},{vr}" if variant == "vr" else vr
        control = [] if variant == "vr" else [f"gsnr_control={variant}"]
        shared = {name: self.recipe[name] for name in ("schedule", "warmup_fraction") if name in self.recipe}
        settings = [f"{name}={value}" for name, value in {**shared, **_used(family)}.items()] + control
        return Search(
            name=f"{self.name}_tuned_{family}_{variant}",
            family=family,
            variant=variant,
            arguments=(
                *self._common(family, self.families[family], data, batch_sizes, optimizers, self.trials),
                "--no-warm-start",
                "--no-prune",
                *(word for setting in settings for word in ("--set", setting)),
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
        return Search(name=f"{self.name}_{label}_{family}", family=family, arguments=arguments)

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
        given = {"pipeline": self.pipeline, "data": data, **self.arguments, "reference": reference, **extra}
        return (
            *("--pipeline", _FACTORY),
            *("--pipeline-args", *(f"{name}={as_yaml(value)}" for name, value in given.items())),
            *("--batch-sizes", ",".join(map(str, batch_sizes))),
            *("--optimizers", optimizers),
            *("--trials", str(trials), "--seeds", str(self.seeds)),
            *("--full-grid", "--no-controls"),
        )


def _used(family: str) -> dict[str, Any]:
    """The paper's bounds, fixed, where the optimizer has them."""
    return {n: v for n, v in _PAPER_BOUNDS.items() if n != "gsnr_beta" or family in ("adam", "adamw", "lamb")}


_PAPER_RECIPE = {"schedule": "cosine", "warmup_fraction": 0.1}

RESIDUAL = Protocol(
    name="residual",
    pipeline="pipelines.image_classification",
    arguments={"model": "resnet8", "subset": 4000},
    families={
        "sgd": {"lr": 0.2, "weight_decay": 5e-4},
        "adam": {"lr": 5e-3, "weight_decay": 1e-5},
        "lars": {"lr": 10.0, "weight_decay": 5e-4},
        "lamb": {"lr": 2e-2, "weight_decay": 1e-2},
    },
    batch_sizes=(128, 256, 512, 1024, 2000),
    tuned_batch_sizes=(128, 512, 2000),
    recipe={"epochs": 10, **_PAPER_RECIPE},
)
"""Table 5 in small: 8 layers, 4,000 images."""

RESIDUAL_56 = Protocol(
    name="residual_56",
    pipeline="pipelines.image_classification",
    arguments={"model": "resnet56", "crop": 4},
    families=RESIDUAL.families,
    batch_sizes=(256, 512, 1024, 2048, 4096, 8192),
    tuned_batch_sizes=(256, 2048, 8192),
    recipe={"epochs": 160, **_PAPER_RECIPE},
)
"""Table 5 at its size, for GPUs: ResNet-56 on CIFAR-10."""

PERCEPTRON = Protocol(
    name="perceptron",
    pipeline="pipelines.image_classification",
    arguments={"model": "perceptron", "subset": 20000},
    families={"sgd": {"lr": 0.05, "weight_decay": 5e-4}, "adamw": {"lr": 1e-3, "weight_decay": 1e-2}},
    batch_sizes=(128, 512, 2048, 5120, 10000),
    tuned_batch_sizes=(128, 1024, 5120, 10000),
    recipe={"epochs": 8, **_PAPER_RECIPE},
)
"""The perceptrons of our own first measurements."""

CLICKS = Protocol(
    name="clicks",
    pipeline="pipelines.click_through",
    arguments={},
    families={"sgd": {"lr": 5.0, "weight_decay": 1e-6, "momentum": 0.0}},
    batch_sizes=(512, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
    tuned_batch_sizes=(512, 2048, 8192),
    recipe={"epochs": 1, "schedule": "polynomial", "warmup_fraction": 0.1},
    margin=0.005,
    trials=16,
)
"""Table 4 in small: DLRM on Census-Income, one epoch of SGD."""
