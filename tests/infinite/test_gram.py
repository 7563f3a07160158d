"""Large matrices: tiles, cores, files, caches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gdkl.infinite as inf
from gdkl.infinite import gram
from gdkl.infinite.covariance import CovarianceEngine
from gdkl.infinite.engines import engine_for
from gdkl.infinite.precise import PreciseEngine
from gdkl.numerics import MemoryLimitError, OptionError


def rows(n: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "CACHE_NUMBERS", 50)


NETWORKS = {
    "smooth": (inf.mlp(2, activation="gelu"), (3,)),
    "dense": (inf.mlp(2), (3,)),
    "image": (inf.Sequential(inf.Conv2d(3, padding=1, bias_var=0.1), inf.ReLU(), inf.Flatten()), (2, 4, 4)),
    "pooled": (inf.Sequential(inf.Conv2d(2, bias_var=0.1), inf.ReLU(), inf.GlobalAvgPool2d()), (2, 3, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("n2", [None, 9])
def test_tiles_do_not_change_the_result(
    name: str, kind: str, jobs: int, n2: int | None, monkeypatch: pytest.MonkeyPatch
):
    net, shape = NETWORKS[name]
    x1 = torch.randn(14, *shape, dtype=torch.float64)
    x2 = None if n2 is None else torch.randn(n2, *shape, dtype=torch.float64)
    whole = net.kernel(x1, x2, kind=kind)
    monkeypatch.setattr(gram, "CACHE_NUMBERS", 50)
    K = net.kernel(x1, x2, kind=kind, n_jobs=jobs)
    torch.testing.assert_close(K, whole, rtol=1e-13, atol=1e-14)
    if n2 is None:
        assert torch.equal(K, K.T)


STRAIGHT = {
    "mlp": (inf.mlp(3), (5,)),
    "no_bias": (inf.mlp(2, 2.0, 0.0), (5,)),
    "abs": (inf.Sequential(inf.Linear(1.2, 0.1), inf.Abs(), inf.Linear(), inf.ABReLU(-0.3, 0.9)), (5,)),
    "straight": (inf.Sequential(inf.Linear(1.2, 0.1), inf.ABReLU(0.7, 0.7), inf.ReLU()), (5,)),
    "norm": (
        inf.Sequential(
            inf.Linear(), inf.LayerNorm(), inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear())), inf.LeakyReLU()
        ),
        (5,),
    ),
    "wide_resnet": (inf.wide_resnet(2), (3, 6, 7)),
    "filters": (
        inf.Sequential(
            inf.Conv2d((5, 2), (2, 1), (2, 1), bias_var=0.1),
            inf.ReLU(),
            inf.Conv2d(3, 2, "same", "circular", weight_var=2.0),
            inf.LeakyReLU(0.3),
            inf.Conv2d((1, 3), (1, 3), "valid"),
            inf.Dropout(),
            inf.Residual(inf.Conv2d(1), inf.Conv2d(7, 1, 3)),
            inf.ReLU(),
            inf.Flatten(),
            inf.Linear(1.0, 0.2),
            inf.ReLU(),
        ),
        (2, 9, 8),
    ),
}


@pytest.mark.parametrize("name", STRAIGHT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_covariance_engine_agrees_with_the_precise_recursion(name: str, dtype: torch.dtype):
    net, shape = STRAIGHT[name]
    x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    x[3], x[4], x[5], x[6] = x[0], -x[0], 1e4 * x[1], 0
    assert isinstance(engine_for(net.program(), x, x, "nngp"), CovarianceEngine)
    assert isinstance(engine_for(net.program(), x, x, "ntk"), PreciseEngine)
    # A gradient asks for the whole recursion.
    slow, slow_cross = (net.kernel(x.clone().requires_grad_(), y).detach() for y in (None, x))
    scale = slow.diagonal().sqrt()
    bound = (1e-14 if dtype == torch.float64 else 3e-6) * scale[:, None] * scale[None, :]
    assert torch.all((net.kernel(x) - slow).abs() <= bound)
    assert torch.all((net.kernel(x, x.clone()) - slow_cross).abs() <= bound)
    torch.testing.assert_close(net.diagonal(x), slow.diagonal(), rtol=1e-14 if dtype == torch.float64 else 3e-6, atol=0)


def test_memory_budget_sets_the_tile():
    x = rows(20)
    net = inf.mlp(1)
    seen: list[tuple[int, int]] = []
    net.kernel(x, memory=16 * 8 * 25, n_jobs=1, progress=lambda done, total: seen.append((done, total)))
    # Twenty-five pairs at a time: every row is a tile of its own, from the diagonal on.
    assert len(seen) == 20
    assert seen[-1] == (400, 400)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_failing_thread_is_heard(monkeypatch: pytest.MonkeyPatch):
    """Whichever thread a part fails in, the error comes out and the others stop."""
    monkeypatch.setattr(gram, "CACHE_NUMBERS", 50)
    seen: list[int] = []

    def fail(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        if len(seen) > 40:
            raise FloatingPointError("no more")
        return torch.tanh(x)

    with pytest.raises(FloatingPointError, match="no more"):
        inf.Sequential(inf.Linear(), inf.Elementwise(fail)).kernel(rows(300), n_jobs=3)


def test_progress_ends_with_all_pairs_on_many_threads(small_tiles: None):
    seen: list[tuple[int, int]] = []
    net = inf.mlp(1, activation="erf")
    K = net.kernel(rows(60), n_jobs=3, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (3600, 3600)
    with torch.inference_mode():
        assert torch.equal(net.kernel(rows(60), n_jobs=3), K)


@pytest.mark.parametrize("net", [inf.mlp(), inf.mlp(1, activation="erf")], ids=["covariance", "precise"])
def test_inference_mode_leaves_nothing_behind(net: inf.Sequential, tmp_path: Path, small_tiles: None):
    x = rows(30)
    with torch.inference_mode():
        inside, diagonal = net.kernel(x, n_jobs=2), net.diagonal(x)
        written = net.kernel(x, n_jobs=2, out=tmp_path / "kernel.npy")
    # Memory that is used again was not made for inference alone.
    K = net.kernel(x, n_jobs=2)
    assert torch.equal(K, inside)
    assert torch.equal(K, written)
    assert torch.equal(K.diagonal(), diagonal)


def test_no_rows():
    x = rows(4)
    assert inf.mlp().kernel(x[:0], x).shape == (0, 4)
    assert inf.mlp().kernel(x[:0]).shape == (0, 0)
    assert inf.mlp().diagonal(x[:0]).shape == (0,)


class TestFiles:
    def test_out(self, tmp_path: Path, small_tiles: None):
        x = rows(23).numpy()
        K = inf.mlp().kernel(x, out=tmp_path / "k.npy")
        assert isinstance(K, np.memmap)
        assert np.array_equal(np.load(tmp_path / "k.npy"), K)
        assert np.array_equal(K, K.T)
        np.testing.assert_allclose(K, inf.mlp().kernel(x), rtol=1e-13)
        assert [path.name for path in tmp_path.iterdir()] == ["k.npy"]

    def test_out_gives_tensors_for_tensors(self, tmp_path: Path):
        x = rows(5).float()
        K = inf.mlp().kernel(x, x[:2], out=str(tmp_path / "k.npy"))
        assert torch.equal(K, inf.mlp().kernel(x, x[:2]))
        assert np.load(tmp_path / "k.npy").dtype == np.float32

    def test_no_half_written_file(self, tmp_path: Path, small_tiles: None):
        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            inf.mlp().kernel(rows(30), out=tmp_path / "k.npy", progress=stop)
        assert list(tmp_path.iterdir()) == []

    def test_bad_paths(self, tmp_path: Path):
        with pytest.raises(OptionError, match="npy"):
            inf.mlp().kernel(rows(3), out=tmp_path / "k.csv")
        with pytest.raises(OptionError, match="does not exist"):
            inf.mlp().kernel(rows(3), out=tmp_path / "no" / "k.npy")


class TestCache:
    def test_computed_once(self, tmp_path: Path):
        x, calls = rows(9), []

        def count(done: int, total: int) -> None:
            calls.append(done)

        first = inf.mlp().kernel(x, cache_dir=tmp_path, progress=count)
        computed = len(calls)
        second = inf.mlp().kernel(x.clone(), cache_dir=tmp_path, progress=count)
        assert len(calls) == computed > 0
        assert torch.equal(first, second)
        assert torch.equal(first, inf.mlp().kernel(x))

    def test_keyed_by_everything(self, tmp_path: Path):
        x = rows(5)
        inf.mlp().kernel(x, cache_dir=tmp_path)
        inf.mlp().kernel(x, x, cache_dir=tmp_path)
        inf.mlp().kernel(x, kind="ntk", cache_dir=tmp_path)
        inf.mlp().kernel(x.float(), cache_dir=tmp_path)
        inf.mlp().kernel(2 * x, cache_dir=tmp_path)
        inf.mlp(2).kernel(x, cache_dir=tmp_path)
        assert len(list(tmp_path.iterdir())) == 6

    def test_the_caller_cannot_spoil_it(self, tmp_path: Path):
        x = rows(5).numpy()
        K = inf.mlp().kernel(x, cache_dir=tmp_path)
        before = K.copy()
        K += 1
        assert np.array_equal(inf.mlp().kernel(x, cache_dir=tmp_path), before)

    def test_damaged_entries_are_computed_again(self, tmp_path: Path):
        x = rows(5)
        K = inf.mlp().kernel(x, cache_dir=tmp_path)
        (entry,) = tmp_path.iterdir()
        entry.write_bytes(entry.read_bytes()[:40])
        assert torch.equal(inf.mlp().kernel(x, cache_dir=tmp_path), K)

    def test_with_out(self, tmp_path: Path):
        x = rows(5)
        K = inf.mlp().kernel(x, cache_dir=tmp_path / "cache", out=tmp_path / "k.npy")
        assert torch.equal(K, inf.mlp().kernel(x))

    def test_functions_have_no_key(self, tmp_path: Path):
        with pytest.raises(OptionError, match=r"cache_dir knows .* Python function"):
            inf.Elementwise(torch.tanh).kernel(rows(3), cache_dir=tmp_path)


def test_a_matrix_that_does_not_fit_names_the_way_out():
    x = torch.zeros(1, 1).expand(3_000_000, 1)
    with pytest.raises(MemoryLimitError, match="out="):
        inf.mlp().kernel(x)


def test_gradients_are_not_kept(tmp_path: Path):
    with pytest.raises(OptionError, match="detach"):
        inf.mlp().kernel(rows(3).requires_grad_(), out=tmp_path / "k.npy")


def test_bad_options():
    with pytest.raises(OptionError, match="memory"):
        inf.mlp().kernel(rows(3), memory=0)
    with pytest.raises(OptionError, match="n_jobs"):
        inf.mlp().kernel(rows(3), n_jobs=0)


@pytest.mark.long
def test_twenty_thousand_rows_go_to_disk_within_two_gib(tmp_path: Path):
    """In a process that may not take more than 2 GiB of memory of its own; pages of the file do not count."""
    script = (
        "import numpy as np, gdkl.infinite as inf, resource\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))\n"
        "x = np.random.default_rng(0).standard_normal((20000, 20)).astype('float32')\n"
        f"K = inf.mlp().kernel(x, out={str(tmp_path / 'k.npy')!r})\n"
        "assert K.shape == (20000, 20000)\n"
        "assert np.array_equal(K[:100, -100:], K[-100:, :100].T)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
