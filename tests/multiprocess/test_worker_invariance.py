"""The trajectory is that of one worker, whatever the number of workers; 8 groups do not divide evenly over 3. The model
has dropout, batch normalisation and its running statistics.

Workers compare with states that the parent wrote; one start of the workers runs all cases, because it takes seconds.
"""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import product

import torch
import torch.distributed as dist
from launcher import run_workers
from workloads import Blobs, Diverging, NormedBlobs

from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.execution import Execution
from vrgd_ray.training.loop import TrainingRun, train
from vrgd_ray.training.worker_context import CheckpointInterval, WorkerContext

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
        return None if self.start is None else CheckpointStore(str(self.start)).load(HALFWAY)

    def report(self, progress, state):
        if self.folder is not None:
            CheckpointStore(str(self.folder)).save(progress.step, state())


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
    context = Context(rank, world_size, start=folder / "vr_adamw" / "float64")
    run, result = train_case("vr_adamw", "float64", context)
    assert len(result.curve) == 2
    assert_same(run, folder, "vr_adamw", "float64")


def assert_same(run, folder, optimizer, dtype):
    expected = CheckpointStore(str(folder / optimizer / dtype)).load(STEPS[dtype])["model"]
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


class LittleMemory(Blobs):
    """Runs out of memory above four samples in every worker but the first."""

    def loss(self, model, batch):
        if len(batch[1]) > 4 and dist.get_rank() > 0:
            raise torch.OutOfMemoryError("too much")
        return super().loss(model, batch)


def check_passes(folder, world_size, rank):
    """All workers take what the smallest can hold, and groups in parts give what whole groups do."""
    recipe = Blobs.reference.with_values(optimizer="vr_adamw", batch_size=BATCH)
    run = TrainingRun(LittleMemory(dtype="float64"), recipe, Context(rank, world_size))
    assert run.find_samples_per_pass(7) == 4
    run.plan = replace(run.plan, max_samples_per_pass=4)
    for _ in range(10):
        run.train_step()
    assert_close(run, TrainingRun(Blobs(dtype="float64"), recipe, LocalContext()), 10, 1e-12)


def check_deterministic(folder, world_size, rank):
    """Sums in float64 agree to the last bit but for the rare rounding that falls the other way."""
    recipe = NormedBlobs.reference.with_values(optimizer="vr_adamw", batch_size=BATCH)
    run, alone = (
        TrainingRun(NormedBlobs(), recipe, context, execution=Execution(deterministic=True))
        for context in (Context(rank, world_size), LocalContext())
    )
    for _ in range(10):
        run.train_step()
    assert_close(run, alone, 10, 1e-6)


def assert_close(run, alone, steps, tolerance):
    for _ in range(steps):
        alone.train_step()
    for name, value in run.module.state_dict().items():
        torch.testing.assert_close(value, alone.module.state_dict()[name], rtol=0, atol=tolerance)


def check_choice_of_checkpoint(folder, world_size, rank):
    """A state that the first worker cannot read is passed over by all of them."""
    store = CheckpointStore(str(folder / f"choice_{world_size}"))
    if rank == 0:
        for step in (1, 2):
            store.save(step, {"step": step, "samples": step})
        (folder / f"choice_{world_size}" / "step_000000002.pt").write_bytes(b"")
    context = WorkerContext(
        store=store,
        emit=lambda event: None,
        interval=CheckpointInterval(),
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    assert context.initial_state()["step"] == 1


def check_all_world_sizes(folder, rank):
    for world_size in WORLD_SIZES:
        regroup(folder, world_size, rank)
        if rank < world_size:
            check_passes(folder, world_size, rank)
            check_deterministic(folder, world_size, rank)
            check_choice_of_checkpoint(folder, world_size, rank)
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
