"""A trainer with a known answer: the metric is a function of batch, learning rate and seed, computed at once."""

import random

from vrgd_ray import Recipe
from vrgd_ray.limit.criterion import Criterion
from vrgd_ray.limit.finder import Finder
from vrgd_ray.limit.plan import SearchPlan
from vrgd_ray.training.result import Progress, TrainingResult

REFERENCE = Recipe(optimizer="adamw", batch_size=32, lr=1e-3, epochs=4, weight_decay=0.01)


class SimulatedPipeline:
    """What the finder reads of a pipeline."""

    metric = "accuracy"
    mode = "max"
    num_train_samples = 2048
    pairable = True
    reference = REFERENCE


def plan(**changes):
    values = {
        "pipeline": "simulated",
        "pipeline_args": {},
        "reference": REFERENCE,
        "num_train_samples": 2048,
        "optimizers": ("adamw", "vr_adamw"),
        "batch_sizes": (32, 64, 128, 256, 512),
        "trials": 4,
        "seeds": 5,
        "criterion": Criterion(margin=0.01, mode="max", looks=(5, 10), paired=True),
        "width": 2,
    }
    return SearchPlan(**{**values, **changes})


def train(job, limits, noise=0.002, noise_scale=80.0):
    """Accuracy 0.95, lower beyond the optimizer's limit and off the best learning rate, plus noise keyed by the run."""
    recipe = job.recipe
    generator = random.Random(f"{recipe.seed}/{recipe.optimizer}/{recipe.batch_size}/{job.role}")
    accuracy = 0.95 + generator.gauss(0, noise)
    if recipe.batch_size > limits.get(recipe.optimizer, 10**9):
        accuracy -= 0.05
    if job.role == "search":
        accuracy -= abs(recipe.lr / REFERENCE.lr - 1) * 1e-4
    return result(accuracy, recipe, noise_scale)


def result(accuracy, recipe, noise_scale=80.0):
    steps = 8192 // recipe.batch_size
    point = Progress(step=steps, total_steps=steps, samples=8192, metrics={"accuracy": accuracy})
    return TrainingResult(
        metrics={"accuracy": accuracy}, steps=steps, samples=8192, seconds=0.5, noise_scale=noise_scale, curve=[point]
    )


class Seeds:
    """An arm whose seeds are all trained already."""

    failed = None

    def __init__(self, values):
        self.all = values.tolist()

    def values(self, count):
        return self.all[:count]


DIVERGED = TrainingResult(metrics={}, diverged=True, steps=3)


def run(finder, trainer, concurrent=2, order=None):
    """Drive a finder as an executor would; `order` picks which running job finishes next."""
    running, pick = [], order or (lambda jobs: 0)
    while True:
        while len(running) < concurrent and (job := finder.next_job()) is not None:
            running.append(job)
        if not running:
            assert finder.done, "nothing runs, nothing is asked for, and yet the search is not done"
            return finder
        job = running.pop(pick(running))
        finder.observe(job, trainer(job))


def search(
    trainer=None, *, limits=None, listeners=(), recorded=None, concurrent=2, order=None, continuation=0, **changes
):
    finder = Finder(plan(**changes), SimulatedPipeline(), listeners, recorded, continuation=continuation)
    return run(finder, trainer or (lambda job: train(job, limits or {})), concurrent, order)
