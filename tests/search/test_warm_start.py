"""What a cell tries first: its nearest tuned neighbour's best, by the law that has predicted best so far."""

import math

import pytest

from vrgd_ray import Recipe
from vrgd_ray.search.space import SpaceContext
from vrgd_ray.search.warm_start import first_guesses

REFERENCE = Recipe(optimizer="adamw", batch_size=32, lr=1e-3, weight_decay=0.0, schedule="polynomial")


def context(optimizer="adamw", batch_size=128):
    return SpaceContext(batch_size=batch_size, optimizer=optimizer, reference=REFERENCE)


def tuned(batch_size, lr, optimizer="adamw", **changes):
    return REFERENCE.with_values(optimizer=optimizer, batch_size=batch_size, lr=lr, **changes)


def rates(guesses):
    return [guess["lr"] for guess in guesses]


def test_without_anything_tuned_the_reference_by_square_root_then_linearly():
    assert rates(first_guesses(context())) == pytest.approx([2e-3, 4e-3])
    assert first_guesses(context(batch_size=32)) == [
        {"num_groups": 8, "weight_decay": 0.0, "schedule": "polynomial", "warmup_fraction": 0.0, "lr": 1e-3}
        | {"clip_grad_norm": None}
    ]


def test_another_family_guesses_nothing_until_one_of_its_own_is_tuned():
    assert first_guesses(context("lamb")) == []
    assert rates(first_guesses(context("lamb", 256), [tuned(128, 0.01, "lamb")]))[0] == pytest.approx(
        0.01 * math.sqrt(2)
    )


def test_the_nearest_of_the_same_optimizer_is_carried_over_with_all_it_found():
    cells = [tuned(32, 1e-3), tuned(64, 3e-3, "vr_adamw", gsnr_lower=0.3, weight_decay=0.1)]
    (first, _) = first_guesses(context("vr_adamw", 128), cells)
    assert (first["gsnr_lower"], first["weight_decay"]) == (0.3, 0.1)
    assert first["lr"] > 3e-3


def test_a_twin_at_the_reference_batch_starts_from_the_tuned_reference():
    (guess,) = first_guesses(context("vr_adamw", 32), [tuned(32, 5e-3, weight_decay=0.2)])
    assert (guess["lr"], guess["weight_decay"], guess["gsnr_lower"]) == (5e-3, 0.2, REFERENCE.gsnr_lower)


def test_the_law_that_predicted_best_comes_first():
    linear = [tuned(32, 1e-3), tuned(64, 2e-3)]
    root = [tuned(32, 1e-3), tuned(64, math.sqrt(2) * 1e-3)]
    assert rates(first_guesses(context(), linear)) == pytest.approx([4e-3, 2e-3 * math.sqrt(2)])
    assert rates(first_guesses(context(), root))[0] == pytest.approx(2e-3)


def test_the_law_of_the_noise_scale_is_used_where_it_predicts_best():
    noise_scale = 50.0

    def best(batch_size):
        return 0.01 / (1 + noise_scale / batch_size)

    cells = [tuned(b, best(b)) for b in (32, 64, 128)]
    assert rates(first_guesses(context(batch_size=256), cells, noise_scale))[0] == pytest.approx(best(256))
    assert rates(first_guesses(context(batch_size=256), cells))[0] != pytest.approx(best(256))


def test_the_way_down_scales_down():
    cells = [tuned(32, 1e-3), tuned(512, 4e-3)]
    assert rates(first_guesses(context(batch_size=256), cells))[0] == pytest.approx(4e-3 / math.sqrt(2))
