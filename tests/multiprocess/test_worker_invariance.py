"""The trajectory is that of one worker, whatever the number of workers; 8 groups do not divide evenly over 3. The model
has dropout, batch normalisation and its running statistics.

Workers compare with states that the parent wrote; one start of the workers runs all cases, because it takes seconds.
"""

from datetime import timedelta
from functools import partial
from itertools import product

import torch
import torch.distributed as dist
from launcher import run_workers
from workloads import Blobs, Diverging, NormedBlobs

from vrgd_ray.training.checkpoint import load_state, save_state
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun, train

OPTIMIZERS = ("sgd", "adamw", "vr_adamw", "vr_lamb")
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
STEPS = {"float64": 100, "float32": 10}
BATCH = 56  # does not divide the 240 samples: batches straddle epochs
CASES = list(product(OPTIMIZERS, TOLERANCE))
HALFWAY = 50
WORLD_SIZES = (2, 3, 4)
TIMEOUT = timedelta(seconds=120)  # the last worker waits while the others check the smaller groups


class Context(LocalContext):
    """A worker that writes a checkpoint at every report where it has a folder, and starts from one where it has."""

    def __init__(self, rank=0, world_size=1, folder=None, start=None):
        super().__init__(rank=rank, world_size=world_size)
        self.folder, self.start = folder, start

    def initial_state(self):
        return None if self.start is None else load_state(self.start)

    def report(self, progress, state):
        if self.folder is not None:
            directory = self.folder / str(progress.step)
            directory.mkdir(parents=True)
            save_state(directory, state())


def train_case(optimizer, dtype, context):
    recipe = NormedBlobs.reference.with_values(
        optimizer=optimizer, batch_size=BATCH, epochs=(STEPS[dtype] + 0.5) * BATCH / 240
    )
    run = TrainingRun(NormedBlobs(dtype=dtype), recipe, context, evaluations=2)
    return run, run.run()


def check_trajectories(folder, world_size, rank):
    for optimizer, dtype in CASES:
        run, result = train_case(optimizer, dtype, Context(rank, world_size))
        assert run.total_steps == STEPS[dtype]
        assert bool(result.metrics) == (rank == 0)
        assert_same(run, folder, optimizer, dtype)


def check_resumed(folder, world_size, rank):
    start = folder / "vr_adamw" / "float64" / str(HALFWAY)
    run, result = train_case("vr_adamw", "float64", Context(rank, world_size, start=start))
    assert len(result.curve) == 2
    assert_same(run, folder, "vr_adamw", "float64")


def assert_same(run, folder, optimizer, dtype):
    expected = load_state(folder / optimizer / dtype / str(STEPS[dtype]))["model"]
    for name, value in run.module.state_dict().items():
        torch.testing.assert_close(
            value,
            expected[name],
            rtol=0,
            atol=TOLERANCE[dtype],
            msg=lambda text: f"{optimizer} {dtype}: {text}",
        )


def check_divergence(world_size, rank):
    """A loss that is not finite on one worker ends the run on all of them, in the same step."""
    result = train(Diverging(after_passes=16 if rank == 0 else 10**9), Blobs.reference, Context(rank, world_size))
    assert result.diverged
    steps = [None] * world_size
    dist.all_gather_object(steps, result.steps)
    assert len(set(steps)) == 1


def check_all_world_sizes(folder, rank):
    for world_size in WORLD_SIZES:
        regroup(folder, world_size, rank)
        if rank < world_size:
            check_trajectories(folder, world_size, rank)
            check_resumed(folder, world_size, rank)
            check_divergence(world_size, rank)
    regroup(folder, max(WORLD_SIZES), rank, "end")


def regroup(folder, world_size, rank, purpose="check"):
    """Leave the process group, and form one of the first `world_size` workers."""
    if dist.is_initialized():
        dist.destroy_process_group()
    if rank < world_size:
        method = f"file://{folder}/rendezvous_{world_size}_{purpose}"
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world_size, timeout=TIMEOUT)


def test_any_number_of_workers_follows_the_trajectory_of_one(tmp_path):
    for optimizer, dtype in CASES:
        train_case(optimizer, dtype, Context(folder=tmp_path / optimizer / dtype))
    run_workers(partial(check_all_world_sizes, tmp_path), max(WORLD_SIZES))
