"""Groups that do not fit into memory at once are computed in parts, with the same result."""

import numpy as np
import pytest
import torch
from torch import nn
from workloads import Blobs, NormedBlobs

from vrgd_ray import ConfigError, keyed_uniform
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.execution import Execution
from vrgd_ray.training.loop import TrainingRun

RECIPE = Blobs.reference.with_values(optimizer="vr_adamw", batch_size=56, epochs=2)  # groups of 7


class Small(Blobs):
    """A model that runs out of memory above so many samples; counts its passes."""

    def __init__(self, most=10**9, **options):
        super().__init__(**options)
        self.most, self.sizes = most, []

    def loss(self, model, batch):
        self.sizes.append(len(batch[1]))
        if len(batch[1]) > self.most:
            raise torch.OutOfMemoryError("too much")
        return super().loss(model, batch)


class Listening(LocalContext):
    """Keeps what is said."""

    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, message):
        self.said.append(message)


def run_of(pipeline, limit=None, context=None):
    execution = Execution(max_samples_per_pass=limit)
    return TrainingRun(pipeline, RECIPE, context or LocalContext(), execution=execution)


def parameters_of(run):
    return torch.cat([parameter.detach().flatten() for parameter in run.module.parameters()])


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 100])
def test_the_limit_changes_nothing_but_the_size_of_the_passes(limit):
    whole = run_of(Small(dtype="float64"))
    expected = whole.run()
    pipeline = Small(dtype="float64")
    parts = run_of(pipeline, limit)
    result = parts.run()
    torch.testing.assert_close(parameters_of(parts), parameters_of(whole), rtol=0, atol=1e-12)
    assert result.noise_scale == pytest.approx(expected.noise_scale)
    assert max(pipeline.sizes) <= limit
    assert sum(pipeline.sizes) == RECIPE.batch_size * result.steps


def test_parts_of_a_group_draw_their_own_dropout():
    class Recording(Blobs):
        def loss(self, model, batch):
            drawn.append(torch.rand(()).item())
            return super().loss(model, batch)

    drawn = []
    run_of(Recording(), 3).train_step()
    assert len(set(drawn)) == len(drawn) == 8 * 3


def test_batch_statistics_and_parts_exclude_each_other():
    with pytest.raises(
        ConfigError,
        match=r"7 samples does not fit into a pass of 3, .* batch normalisation.*use more groups .*group normalisation",
    ):
        run_of(NormedBlobs(), 3)
    run_of(NormedBlobs(), 7).train_step()


@pytest.mark.parametrize(("most", "found"), [(100, 7), (7, 7), (6, 4), (3, 2), (1, 1)])
def test_what_fits_is_found_by_halving_and_said(most, found):
    context = Listening()
    run = run_of(Small(most), context=context)
    before = parameters_of(run).clone()
    assert run.find_samples_per_pass(7) == found
    assert torch.equal(parameters_of(run), before)
    assert all(parameter.grad is None for parameter in run.module.parameters())
    assert bool(context.said) == (found < 7)
    assert all(f"passes of at most {found}" in message for message in context.said)


def test_a_model_too_large_for_a_single_sample_is_refused():
    with pytest.raises(ConfigError, match="not even a single sample"):
        run_of(Small(0)).find_samples_per_pass(7)


def test_trying_leaves_buffers_as_they_were():
    run = run_of(NormedBlobs())
    before = [buffer.clone() for buffer in run.module.buffers()]
    run.find_samples_per_pass(7)
    assert all(torch.equal(a, b) for a, b in zip(run.module.buffers(), before, strict=True))


class Frozen(NormedBlobs):
    """Batch normalisation in eval mode, with or without statistics of its own to use there."""

    def __init__(self, tracks):
        super().__init__()
        self.tracks = tracks

    def build_model(self):
        return nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=self.tracks).eval(), nn.Linear(8, 3)
        )


def test_frozen_normalisation_may_be_computed_in_parts_where_it_has_statistics():
    whole, parts = run_of(Frozen(tracks=True)), run_of(Frozen(tracks=True), 3)
    for run in (whole, parts):
        run.train_step()
    torch.testing.assert_close(parameters_of(parts), parameters_of(whole), rtol=0, atol=1e-5)
    with pytest.raises(ConfigError, match="batch normalisation"):
        run_of(Frozen(tracks=False), 3)


def test_a_run_that_goes_on_keeps_the_passes_it_had():
    run = run_of(Small(), 3)
    run.train_step()

    class Resuming(LocalContext):
        def initial_state(self):
            return run.state_dict()

    assert run_of(Small(), context=Resuming()).plan.max_samples_per_pass == 3


class Augmented:
    """Shifts every sample by a draw of its own."""

    def __init__(self, data):
        self.data, self.seen = data, {}

    def __len__(self):
        return len(self.data)

    def __getitem__(self, indices):
        raise AssertionError("augmented data is read by augmented()")

    def augmented(self, indices, keys):
        self.seen |= dict(zip(keys.tolist(), indices.tolist(), strict=True))
        inputs, labels = self.data[indices]
        return inputs + torch.from_numpy(keyed_uniform(keys, 4) - 0.5).to(inputs.dtype), labels


class Augmenting(Blobs):
    """Blobs with noise on every sample, drawn by its key."""

    def train_data(self):
        self.data = Augmented(super().train_data())
        return self.data


def test_augmentation_is_keyed_by_seed_epoch_and_sample():
    whole, parts = Augmenting(dtype="float64"), Augmenting(dtype="float64")
    first, second = run_of(whole), run_of(parts, 2)
    first.run()
    second.run()
    torch.testing.assert_close(parameters_of(first), parameters_of(second), rtol=0, atol=1e-12)
    assert whole.data.seen == parts.data.seen
    assert len(whole.data.seen) == first.samples  # every sample has another key in every epoch
    assert np.bincount(list(whole.data.seen.values())).max() == 2
