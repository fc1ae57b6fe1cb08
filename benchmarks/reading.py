"""How much faster samples are read than the training step needs them.

    python -m benchmarks.reading --pipeline pipelines.image_classification --pipeline-args data=FOLDER

One thread, passes of one group of the reference recipe, samples in random order, augmented as in training; the median
over passes. What is divided: seconds of forward and backward of a pass, the optimizer left out, by seconds of its read.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from vrgd_ray import Pipeline, cli
from vrgd_ray.keyed import sample_keys
from vrgd_ray.pipeline import load_pipeline


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of a pass."""

    read: float
    """Median time to read it."""
    train: float
    """Median time to compute its gradient."""

    @property
    def ratio(self) -> float:
        """How many times faster reading is."""
        return self.train / self.read


def measure(pipeline: Pipeline, passes: int = 100) -> Measured:
    """Time reading and gradient of some passes of one group, after a few for warming up."""
    data, model, size = pipeline.train_data(), pipeline.build_model(), pipeline.reference.group_size
    augmented = getattr(data, "augmented", None)
    random, read, train = np.random.default_rng(0), [], []
    for _ in range(passes + 5):
        numbers = random.integers(0, len(data), size)
        started = time.perf_counter()
        batch = augmented(numbers, sample_keys(0, 0, numbers)) if augmented else data[numbers]
        middle = time.perf_counter()
        torch.autograd.backward(pipeline.loss(model, batch))
        train.append(time.perf_counter() - middle)
        read.append(middle - started)
    return Measured(read=statistics.median(read[5:]), train=statistics.median(train[5:]))


def main() -> None:
    """Print a line for the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--pipeline-args", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = load_pipeline(options.pipeline, cli.pipeline_arguments(options.pipeline_args))
    found = measure(pipeline)
    size = pipeline.reference.group_size
    print(
        f"{options.pipeline}: {size} samples read in {1e6 * found.read:.0f} us ({size / found.read:,.0f} a second), "
        f"their gradient takes {1e6 * found.train:.0f} us: {found.ratio:.0f} times faster"
    )


if __name__ == "__main__":
    main()
