"""GradientMoments and every VR optimizer together, in one process."""

import subprocess
import sys

import pytest
import small_training
import torch
from small_training import KINDS, Training

from vrgd_ray.optim import gsnr_scale

every_vr = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every_vr
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_model_learns(kind, dtype):
    training = Training(kind, dtype)
    losses = training.run(range(40))
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5])
    assert all(param.dtype == dtype for param in training.model.parameters())


@every_vr
def test_a_step_before_the_last_micro_batch_says_what_to_do_and_changes_nothing(kind):
    training = Training(kind)
    training.run(range(1))
    before = [param.detach().clone() for param in training.model.parameters()]
    training.micro_batch(1, 0)
    with pytest.raises(RuntimeError, match=r"with moments\.micro_batch\(last=\.\.\.\).* last=True"):
        training.optimizer.step()
    assert all(map(torch.equal, training.model.parameters(), before))


@every_vr
def test_a_second_step_on_the_same_moments_is_refused(kind):
    training = Training(kind)
    training.fill(0)
    training.optimizer.step()
    with pytest.raises(RuntimeError, match="earlier step"):
        training.optimizer.step()
    training.fill(1)
    training.optimizer.step()


def test_training_resumed_in_a_fresh_process_is_the_same_to_the_bit(tmp_path):
    trainings = {kind.__name__: Training(kind) for kind in KINDS}
    for training in trainings.values():
        training.run(range(4))
    torch.save({name: training.state_dict() for name, training in trainings.items()}, tmp_path / "middle.pt")
    files = [str(tmp_path / "middle.pt"), str(tmp_path / "end.pt")]
    subprocess.run([sys.executable, small_training.__file__, *files, "4", "8"], check=True)
    resumed = torch.load(tmp_path / "end.pt", weights_only=True)
    for name, training in trainings.items():
        training.run(range(4, 8))
        assert flat(training.state_dict()) == flat(resumed[name])


def flat(value):
    """Nested containers with tensors as comparable values."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    return [flat(item) for item in value] if isinstance(value, (list, tuple)) else value


@every_vr
def test_loss_scaling_makes_no_difference(kind):
    plain, scaled = Training(kind), Training(kind, scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert plain.run(range(5)) == pytest.approx(scaled.run(range(5)), rel=1e-5)
    for a, b in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_clipping_leaves_the_scale_as_it_is():
    training = Training(next(iter(KINDS)))
    training.fill(0)
    params = list(training.model.parameters())
    before = [gsnr_scale(param.grad, param.grad_var) for param in params]
    norm = training.moments.clip_grad_norm_(1e-3)
    assert norm > 1e-2
    for param, scale in zip(params, before, strict=True):
        torch.testing.assert_close(gsnr_scale(param.grad, param.grad_var), scale, rtol=1e-4, atol=0)
