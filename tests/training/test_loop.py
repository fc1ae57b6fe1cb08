"""The training loop on one worker: what it promises of steps, curves, divergence, seeds and checkpoints."""

import math
from collections import namedtuple

import pytest
import torch
import workloads
from workloads import Blobs

from vrgd_ray import ConfigError, Recipe
from vrgd_ray.training.budget import check_fits, count_steps
from vrgd_ray.training.checkpoint import CheckpointStore
from vrgd_ray.training.context import LocalContext
from vrgd_ray.training.loop import TrainingRun, train
from vrgd_ray.training.placement import to_device
from vrgd_ray.training.probe import seconds_per_step

RECIPE = Blobs.reference.with_values(optimizer="vr_adamw", warmup_fraction=0.1)
OPTIMIZERS = ["sgd", "adamw", "lars", "vr_sgd", "vr_adam", "vr_adamw", "vr_lars", "vr_lamb"]


class SavingContext(LocalContext):
    """Writes a checkpoint at every report, and starts from the one of step `start`, which may lie elsewhere."""

    def __init__(self, folder, start=None, start_folder=None):
        super().__init__()
        self.store = CheckpointStore(str(folder), keep=1000)
        self.start, self.start_store = start, CheckpointStore(str(start_folder or folder))

    def initial_state(self):
        return None if self.start is None else self.start_store.load(self.start)

    def report(self, progress, state):
        self.store.save(progress.step, state())


def parameters_of(run):
    return torch.cat([parameter.detach().flatten() for parameter in run.module.parameters()])


def run_steps(pipeline, recipe, steps):
    run = TrainingRun(pipeline, recipe, LocalContext())
    for _ in range(steps):
        run.train_step()
    return run


def finished(pipeline, recipe, context=None):
    run = TrainingRun(pipeline, recipe, context or LocalContext())
    return run, run.run()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "vr_sgd", "vr_adamw", "vr_lamb"])
def test_it_learns(optimizer):
    result = train(Blobs(), RECIPE.with_values(optimizer=optimizer, lr=0.05), LocalContext(), split="test")
    assert result.metrics["accuracy"] > 0.9
    assert not result.diverged
    assert result.error is None


@pytest.mark.parametrize("pipeline", [Blobs(), workloads.NormedBlobs()], ids=["smooth", "normed"])
def test_the_same_seed_gives_the_same_run_to_the_last_bit(pipeline):
    first, first_result = finished(pipeline, RECIPE)
    torch.manual_seed(99)  # what the process drew before does not matter
    second, second_result = finished(pipeline, RECIPE)
    assert torch.equal(parameters_of(first), parameters_of(second))
    assert first_result.curve == second_result.curve
    assert first_result.metrics == second_result.metrics
    other, _ = finished(pipeline, RECIPE.with_values(seed=1))
    assert not torch.equal(parameters_of(first), parameters_of(other))


@pytest.mark.parametrize(
    ("epochs", "batch", "steps"), [(4, 24, 40), (1, 240, 1), (2.5, 16, 37), (1, 232, 1), (3, 56, 12)]
)
def test_steps_are_the_samples_of_the_budget_over_the_batch_rounded_down(epochs, batch, steps):
    recipe = RECIPE.with_values(epochs=epochs, batch_size=batch)
    assert count_steps(recipe, 240) == steps
    result = train(Blobs(), recipe, LocalContext())
    assert (result.steps, result.samples) == (steps, steps * batch)


def test_epochs_that_are_no_binary_fraction_lose_no_step():
    assert count_steps(RECIPE.with_values(epochs=0.29, batch_size=8, num_groups=8), 800) == 29


def test_the_curve_is_even_in_steps_and_ends_with_the_final_metrics():
    seen = []
    result = train(Blobs(), RECIPE, LocalContext(on_progress=seen.append), evaluations=4)
    assert [(p.step, p.total_steps, p.samples) for p in result.curve] == [(s, 40, 24 * s) for s in (10, 20, 30, 40)]
    assert seen == result.curve
    assert result.metrics == {"accuracy": result.curve[-1].metrics["accuracy"]}


def test_more_evaluations_than_steps_evaluate_after_every_step():
    result = train(Blobs(), RECIPE.with_values(batch_size=80), LocalContext(), evaluations=50)
    assert [point.step for point in result.curve] == list(range(1, 13))


def test_the_learning_rate_follows_the_schedule():
    result = train(Blobs(), RECIPE.with_values(schedule="linear", warmup_fraction=0.5), LocalContext(), evaluations=8)
    rates = [point.metrics["lr"] / RECIPE.lr for point in result.curve]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.8, 0.55, 0.3, 0.05])


def test_the_series_hold_the_noise_scale_with_its_interval_and_the_spread_of_the_scale_over_layers():
    last = train(Blobs(), RECIPE, LocalContext()).curve[-1].metrics
    assert 0 < last["noise_scale_low"] < last["noise_scale"] < last.get("noise_scale_high", math.inf)
    assert RECIPE.gsnr_lower <= last["scale_q10"] <= last["scale_q50"] <= last["scale_q90"] <= RECIPE.gsnr_upper
    plain = train(Blobs(), RECIPE.with_values(optimizer="adamw"), LocalContext()).curve
    assert not {name for point in plain for name in point.metrics if name.startswith("scale_")}
    assert all(math.isfinite(value) for point in plain for value in point.metrics.values())


def test_the_split_chooses_the_data_of_the_final_metrics_only():
    class Telling(Blobs):
        def evaluate(self, model, data):
            self.seen = [*getattr(self, "seen", []), data.tensors[0].sum().item()]
            return super().evaluate(model, data)

    pipeline = Telling()
    validation, test = (data.tensors[0].sum().item() for data in (pipeline.validation_data(), pipeline.test_data()))
    train(pipeline, RECIPE, LocalContext(), split="test", evaluations=2)
    assert pipeline.seen == [validation, validation, validation, test]  # the first before any step
    pipeline.seen = []
    train(pipeline, RECIPE, LocalContext(), split="validation", evaluations=2)
    assert pipeline.seen == [validation, validation, validation]


class GivenTest(Blobs):
    """With given test data; counts its passes."""

    def __init__(self, data):
        super().__init__()
        self.data, self.passes = data, 0

    def test_data(self):
        if isinstance(self.data, Exception):
            raise self.data
        return self.data

    def loss(self, model, batch):
        self.passes += 1
        return super().loss(model, batch)


class Unreadable(workloads.TensorData):
    def __getitem__(self, indices):
        raise OSError("the file is gone")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (FileNotFoundError("test.parquet"), FileNotFoundError, "test.parquet"),
        (Unreadable(torch.ones(3, 4), torch.zeros(3)), OSError, "the file is gone"),
        (workloads.TensorData(torch.ones(0, 4), torch.zeros(0)), ConfigError, r"test_data\(\) holds no samples"),
    ],
    ids=["missing", "unreadable", "empty"],
)
def test_test_data_that_is_broken_is_found_before_the_first_step(data, error, message):
    pipeline = GivenTest(data)
    with pytest.raises(error, match=message):
        train(pipeline, RECIPE, LocalContext(), split="test")
    assert pipeline.passes == 0
    assert train(pipeline, RECIPE, LocalContext(), split="validation").metrics  # which never touches it


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_at_once(value):
    result = train(workloads.Diverging(after_passes=16, value=value), RECIPE, LocalContext())
    assert (result.diverged, result.steps, result.metrics) == (True, 3, {})


def test_the_step_of_a_loss_that_is_not_finite_leaves_the_parameters_alone():
    run = run_steps(workloads.Diverging(after_passes=16), RECIPE, 2)
    before = parameters_of(run).clone()
    assert math.isnan(run.train_step())
    assert torch.equal(parameters_of(run), before)


def test_a_metric_that_is_no_number_counts_as_diverged_and_is_an_error():
    result = train(workloads.NanMetric(), RECIPE, LocalContext())
    assert (result.diverged, result.steps, result.metrics) == (True, 40, {})
    assert result.error == "evaluate() gave accuracy = nan"


def test_an_infinite_metric_has_diverged_without_an_error():
    class Endless(Blobs):
        def evaluate(self, model, data):
            return {"accuracy": -math.inf}

    result = train(Endless(), RECIPE, LocalContext())
    assert (result.diverged, result.error, result.metrics) == (True, None, {})


def test_parameters_that_overflow_in_the_last_step_are_not_evaluated():
    class Strict(Blobs):
        def evaluate(self, model, data):
            assert all(parameter.isfinite().all() for parameter in model.parameters())
            return super().evaluate(model, data)

    recipe = RECIPE.with_values(optimizer="sgd", lr=3e38, weight_decay=1e3, epochs=0.1)
    result = train(Strict(), recipe, LocalContext())
    assert (result.diverged, result.error, result.metrics) == (True, None, {})


def test_metrics_without_the_metric_are_refused():
    class Elsewhere(Blobs):
        metric = "f1"

    with pytest.raises(ConfigError, match=r"evaluate\(\) returned \['accuracy'\] without its metric 'f1'"):
        train(Elsewhere(), RECIPE, LocalContext())


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.ones(3, requires_grad=True), r"the shape \(3,\), not a scalar; return the mean"),
        (0.5, "0.5, not a tensor"),
    ],
)
def test_a_loss_that_is_no_scalar_tensor_is_refused(returned, message):
    class Odd(Blobs):
        def loss(self, model, batch):
            return returned

    with pytest.raises(ConfigError, match=rf"loss\(\) returned .*{message}"):
        train(Odd(), RECIPE, LocalContext())


def test_a_wrong_number_of_training_samples_is_refused():
    class Miscounted(Blobs):
        def train_data(self):
            return self._draw(200, seed=1)

    with pytest.raises(ConfigError, match=r"num_train_samples = 240 but train_data\(\) holds 200"):
        train(Miscounted(), RECIPE, LocalContext())


@pytest.mark.parametrize(
    ("changes", "workers", "message"),
    [
        ({"batch_size": 248}, 1, "batch_size = 248 is above the 240 training samples"),
        (
            {"epochs": 0.05},
            1,
            "epochs = 0.05 of 240 samples are less than one step of batch_size = 24; use more epochs",
        ),
        ({"schedule": "cosin"}, 1, "unknown schedule 'cosin': did you mean 'cosine'"),
        ({"optimizer": "adamv"}, 1, "unknown optimizer 'adamv': did you mean 'adam"),
        ({}, 9, "9 workers cannot share num_groups = 8"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_before_anything_starts(changes, workers, message):
    with pytest.raises(ConfigError, match=message):
        check_fits(RECIPE.with_values(**changes), 240, workers)


def test_a_recipe_that_fits_passes():
    check_fits(RECIPE, 240, 8)


@pytest.mark.parametrize("pipeline", [Blobs(dropout=0.3), workloads.NormedBlobs()], ids=["smooth", "normed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, optimizer, pipeline):
    recipe = RECIPE.with_values(optimizer=optimizer, epochs=1, clip_grad_norm=1.0)
    whole, expected = finished(pipeline, recipe, SavingContext(tmp_path / "whole"))
    for step in (1, 6, 10):
        context = SavingContext(tmp_path / f"from_{step}", start=step, start_folder=tmp_path / "whole")
        resumed, result = finished(pipeline, recipe, context)
        assert torch.equal(parameters_of(resumed), parameters_of(whole))
        assert all(torch.equal(a, b) for a, b in zip(resumed.module.buffers(), whole.module.buffers(), strict=True))
        assert (result.metrics, result.curve) == (expected.metrics, expected.curve)
        assert result.noise_scale == expected.noise_scale
        assert (result.steps, result.samples) == (expected.steps, expected.samples)


def test_a_checkpoint_of_another_recipe_is_refused_naming_what_differs(tmp_path):
    finished(Blobs(), RECIPE, SavingContext(tmp_path))
    other = RECIPE.with_values(lr=0.5, seed=3)
    with pytest.raises(ConfigError, match=r"another recipe: lr = 0.02, not 0.5; seed = 0, not 3\."):
        TrainingRun(Blobs(), other, SavingContext(tmp_path, start=4))


def test_a_checkpoint_of_another_pipeline_is_refused_naming_what_differs(tmp_path):
    class Other(Blobs):
        pass

    finished(Blobs(), RECIPE, SavingContext(tmp_path))
    with pytest.raises(ConfigError, match=r"of another pipeline: pipeline = 'workloads:Blobs', not '.*Other'\."):
        TrainingRun(Other(), RECIPE, SavingContext(tmp_path, start=4))
    wider = Blobs()
    wider.build_model = lambda: torch.nn.Linear(4, 5)
    with pytest.raises(ConfigError, match=r"of another pipeline: shape of weight = None, not \[5, 4\]; shape of bias"):
        TrainingRun(wider, RECIPE, SavingContext(tmp_path, start=4))
    with pytest.raises(ConfigError, match=r"of another pipeline: num_train_samples = 240, not 480\."):
        TrainingRun(Blobs(480), RECIPE.with_values(epochs=2), SavingContext(tmp_path, start=4))


def test_a_checkpoint_with_a_layer_more_or_less_is_refused_naming_it(tmp_path):
    class Stacked(Blobs):
        layers = (torch.nn.Linear(4, 3), torch.nn.Linear(3, 3))

        def build_model(self):
            return torch.nn.Sequential(*self.layers)

    finished(Stacked(), RECIPE, SavingContext(tmp_path))
    less = Stacked()
    less.layers = less.layers[:1]
    with pytest.raises(ConfigError, match=r"another pipeline: shape of 1.weight = \[3, 3\], not None; shape of 1.bias"):
        TrainingRun(less, RECIPE, SavingContext(tmp_path, start=4))
    more = Stacked()
    more.layers = [*more.layers, torch.nn.Linear(3, 3, bias=False)]
    with pytest.raises(ConfigError, match=r"another pipeline: shape of 2.weight = None, not \[3, 3\]\."):
        TrainingRun(more, RECIPE, SavingContext(tmp_path, start=4))


def test_a_checkpoint_with_other_buffers_is_refused_naming_them(tmp_path):
    class Normed(Blobs):
        layer = torch.nn.GroupNorm(1, 4)

        def build_model(self):
            return torch.nn.Sequential(self.layer, torch.nn.Linear(4, 3))

    finished(Normed(), RECIPE, SavingContext(tmp_path))
    other = Normed()
    other.layer = torch.nn.BatchNorm1d(4)
    with pytest.raises(ConfigError, match=r'of another model: .*Missing key\(s\) in state_dict: "0.running_mean"'):
        TrainingRun(other, RECIPE, SavingContext(tmp_path, start=4))


@pytest.mark.parametrize("widths", [{"a": (4, 4), "b": (4, 4)}, {"a": (4, 64), "b": (64, 4)}], ids=["equal", "other"])
def test_a_checkpoint_of_layers_in_another_order_is_refused(tmp_path, widths):
    class Ordered(Blobs):
        order = "ab"

        def build_model(self):
            model = torch.nn.Module()
            for name in self.order:
                setattr(model, name, torch.nn.Linear(*widths[name]))
            model.forward = lambda inputs: model.b(model.a(inputs).tanh())
            return model

    finished(Ordered(), RECIPE, SavingContext(tmp_path))
    TrainingRun(Ordered(), RECIPE, SavingContext(tmp_path, start=4))
    swapped = Ordered()
    swapped.order = "ba"
    with pytest.raises(ConfigError, match=r"defined in another order: a.weight where b.weight is now; define them in"):
        TrainingRun(swapped, RECIPE, SavingContext(tmp_path, start=4))


def test_a_checkpoint_whose_recipe_lists_its_fields_in_another_order_is_taken(tmp_path):
    context = SavingContext(tmp_path)
    run, _ = finished(Blobs(), RECIPE, context)
    state = run.state_dict()
    context.store.save(99, {**state, "recipe": dict(reversed(state["recipe"].items()))})
    assert TrainingRun(Blobs(), RECIPE, SavingContext(tmp_path, start=99)).step == run.step


@pytest.mark.parametrize("base", ["sgd", "adam", "adamw", "lars", "lamb"])
def test_bounds_of_one_are_the_base_optimizer(base):
    recipe = RECIPE.with_values(optimizer=base, gsnr_lower=1.0, gsnr_upper=1.0, weight_decay=0.01)
    pipeline = Blobs(dtype="float64")
    expected = parameters_of(run_steps(pipeline, recipe, 20))
    actual = parameters_of(run_steps(pipeline, recipe.with_values(optimizer=f"vr_{base}"), 20))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-13)
    scaled = recipe.with_values(optimizer=f"vr_{base}", gsnr_lower=0.1)
    assert not torch.allclose(parameters_of(run_steps(pipeline, scaled, 20)), expected, atol=1e-4)


def test_clipping_bounds_the_gradient():
    run = run_steps(Blobs(), RECIPE.with_values(clip_grad_norm=1e-3), 1)
    norm = torch.cat([p.grad.flatten() for p in run.module.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


class Recording(Blobs):
    """Notes the first dropout draw of every pass: which units of a vector of ones survive."""

    def loss(self, model, batch):
        self.masks = [*getattr(self, "masks", []), torch.nn.functional.dropout(torch.ones(64), 0.5).tolist()]
        return super().loss(model, batch)


def masks(seed, steps, start=0):
    pipeline = Recording()
    run = TrainingRun(pipeline, RECIPE.with_values(seed=seed), LocalContext())
    run.step = start
    for _ in range(steps):
        run.train_step()
    return [tuple(mask) for mask in pipeline.masks]


def test_draws_inside_a_pass_are_keyed_by_seed_step_and_group():
    first = masks(seed=0, steps=3)
    assert len(set(first)) == 3 * 8
    assert masks(seed=0, steps=1, start=2) == first[16:]
    assert not set(masks(seed=1, steps=3)) & set(first)


def test_draws_of_the_data_are_keyed_too():
    class Augmented(workloads.TensorData):
        def __getitem__(self, indices):
            inputs, labels = super().__getitem__(indices)
            drawn.append(torch.rand(()).item())
            return inputs, labels

    class Augmenting(Blobs):
        def train_data(self):
            return Augmented(*super().train_data().tensors)

    drawn = []
    run_steps(Augmenting(), RECIPE, 3)
    whole, drawn = drawn, []
    run = TrainingRun(Augmenting(), RECIPE, LocalContext())
    run.step = 2
    run.train_step()
    assert drawn == whole[16:]


def test_the_model_is_evaluated_in_eval_mode_without_gradients_and_trained_in_train_mode():
    class Watching(Blobs):
        def loss(self, model, batch):
            assert model.training
            return super().loss(model, batch)

        def evaluate(self, model, data):
            assert not model.training
            assert not torch.is_grad_enabled()
            return super().evaluate(model, data)

    assert train(Watching(), RECIPE, LocalContext(), evaluations=3).metrics


def test_batches_move_to_the_device_in_their_own_shape():
    Pair = namedtuple("Pair", ["left", "right"])
    context = LocalContext(device=torch.device("meta"))
    batch = {"pair": Pair(torch.ones(1), [torch.ones(2)]), "name": "x", "tuple": (torch.ones(3), 4)}
    moved = to_device(batch, context)
    assert isinstance(moved["pair"], Pair)
    assert (moved["name"], moved["tuple"][1]) == ("x", 4)
    tensors = [moved["pair"].left, moved["pair"].right[0], moved["tuple"][0]]
    assert all(tensor.device.type == "meta" for tensor in tensors)


def test_the_probe_times_a_step():
    assert 0 < seconds_per_step(Blobs(), RECIPE, LocalContext()) < 1
    assert seconds_per_step(Blobs(), Recipe(optimizer="sgd", batch_size=240, lr=0.1), LocalContext()) > 0
