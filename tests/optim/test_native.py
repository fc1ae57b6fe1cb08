"""The C kernels: built only when worth it, kept for later processes, and never required."""

import shutil

import pytest
import torch
from random_moments import parameters, set_moments

from vrgd_ray.optim import VRLAMB, VRAdamW, kernels, native

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Forget the library, and use an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.library.cache_clear()
    yield tmp_path / "vrgd_ray"
    native.library.cache_clear()


@pytest.fixture
def compilations(monkeypatch):
    """List of the commands run."""
    commands, run = [], native.subprocess.run
    monkeypatch.setattr(native.subprocess, "run", lambda *args, **more: (commands.append(args), run(*args, **more)))
    return commands


def step(shapes):
    params = parameters(shapes, torch.float32)
    set_moments(params, 0)
    VRAdamW(params).step()
    return params


def test_small_models_never_compile(monkeypatch):
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: pytest.fail("compiled"))
    step([(300, 300)])


@pytest.mark.parametrize("setting", [("VRGD_NATIVE", "0"), ("CC", "no-such-compiler"), ("CC", "false")])
def test_without_the_kernels_torch_does_the_same(monkeypatch, setting):
    expected = step([(1000, 600)])
    monkeypatch.setenv(*setting)
    native.library.cache_clear()
    assert native.library() is None
    torch.testing.assert_close(step([(1000, 600)]), expected)


@needs_compiler
def test_a_later_process_takes_the_library_from_the_cache(cache, compilations):
    for _ in range(2):
        assert native.library() is not None
        native.library.cache_clear()
    assert len(compilations) == 1
    assert len(list(cache.iterdir())) == 1


@needs_compiler
@pytest.mark.parametrize("spoil", ["folder", "file"])
def test_what_others_could_have_written_is_not_executed(cache, compilations, spoil):
    native.library()
    (cache if spoil == "folder" else next(cache.iterdir())).chmod(0o777)
    native.library.cache_clear()
    assert native.library() is not None
    assert len(compilations) == 2


@needs_compiler
def test_without_a_cache_folder_the_library_is_used_all_the_same(cache):
    cache.write_text("in the way")
    assert native.library() is not None


@needs_compiler
def test_a_user_without_a_home_needs_none(monkeypatch):
    def nowhere(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(native.Path, "expanduser", nowhere)
    assert native.library() is not None


@needs_compiler
@pytest.mark.parametrize("kind", [VRAdamW, VRLAMB])
def test_results_do_not_depend_on_the_number_of_threads(kind, monkeypatch):
    monkeypatch.setattr(native, "MIN_ELEMENTS", 0)
    monkeypatch.setattr(kernels, "SPLIT", 2**13)
    monkeypatch.setattr(kernels, "TASK", 2**10)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        params = parameters([(300, 100), (7,), (50, 40), (9000,), (1000,)], torch.float32)
        optimizer = kind(params, lr=0.01)
        for seed in range(3):
            set_moments(params, seed)
            optimizer.step()
        results.append(params)
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))
