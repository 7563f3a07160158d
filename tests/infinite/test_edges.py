"""Edges: odd paths, damaged files, values out of range, options of the wrong type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import gdkl.infinite as inf
from gdkl.numerics import DataError, DataWarning, MemoryLimitError, NumericsWarning, OptionError


def rows(n: int, d: int = 3) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64)


class TestPaths:
    def test_the_home_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(tmp_path)
        inf.mlp().kernel(rows(3), cache_dir="~/.cache/k")
        inf.mlp().kernel(rows(3), out="~/x.npy")
        assert len(list((home / ".cache" / "k").iterdir())) == 1
        assert (home / "x.npy").exists()
        assert not (tmp_path / "~").exists()

    def test_a_folder_for_a_file(self, tmp_path: Path):
        (tmp_path / "k.npy").mkdir()
        with pytest.raises(OptionError, match="out must name"):
            inf.mlp().kernel(rows(3), out=tmp_path / "k.npy")
        with pytest.raises(OptionError, match="out must name"):
            inf.mlp().kernel(rows(3), out=3)  # pyright: ignore[reportArgumentType]

    def test_a_file_for_a_folder(self, tmp_path: Path):
        (tmp_path / "cache").write_text("")
        with pytest.raises(OptionError, match="cache_dir must name"):
            inf.mlp().kernel(rows(3), cache_dir=tmp_path / "cache")


class TestDamagedCache:
    @pytest.mark.parametrize("damage", ["zeros", "dtype", "npz", "shape", "short", "empty", "plain"])
    def test_is_computed_again_with_a_warning(self, tmp_path: Path, damage: str):
        x = rows(9)
        K = inf.mlp().kernel(x, cache_dir=tmp_path)
        (entry,) = tmp_path.iterdir()
        whole = entry.read_bytes()
        if damage == "zeros":
            entry.write_bytes(whole[:200] + bytes(len(whole) - 200))
        elif damage == "dtype":
            np.save(entry, K.numpy().astype(np.float32))
        elif damage == "npz":
            with entry.open("wb") as file:
                np.savez(file, K=K.numpy())
        elif damage == "shape":
            np.save(entry, K.numpy()[:4])
        else:
            entry.write_bytes({"short": whole[:40], "empty": b"", "plain": b"no matrix at all"}[damage])
        with pytest.warns(DataWarning, match="computed again"):
            again = inf.mlp().kernel(x, cache_dir=tmp_path)
        assert torch.equal(again, K)
        assert entry.read_bytes() == whole

    def test_others_can_read_it(self, tmp_path: Path):
        K = inf.mlp().kernel(rows(5), cache_dir=tmp_path)
        (entry,) = tmp_path.iterdir()
        assert np.array_equal(np.load(entry), K.numpy())


class TestKernelOfGPyTorch:
    @pytest.mark.parametrize("learn", [True, False])
    @pytest.mark.parametrize("diag", [True, False])
    def test_refuses_nan(self, learn: bool, diag: bool):
        x = rows(4)
        x[2, 1] = torch.nan
        kernel = inf.InfiniteWidthKernel(inf.mlp(1), learn=learn).double()
        with pytest.raises(DataError, match="row 2"):
            kernel.forward(x, x, diag=diag)
        with pytest.raises(DataError, match="x2 must be finite"):
            kernel.forward(rows(4), x, diag=diag)

    def test_refuses_other_kinds(self):
        with pytest.raises(OptionError, match="'nngp' or 'ntk'"):
            inf.InfiniteWidthKernel(inf.mlp(1), kind="foo")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("eps", [0.0, 1e-60])
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("activation", ["erf", "relu"])
def test_layer_norm_of_a_zero_row(eps: float, kind: inf.Kind, activation: str):
    net = inf.Sequential(inf.LayerNorm(eps), inf.Linear(), *inf.mlp(1, activation=activation).layers)
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    K = net.kernel(x, kind=kind)
    assert torch.isfinite(K).all()
    assert torch.allclose(K, net.kernel(x.double(), kind=kind).float(), rtol=1e-5)
    assert torch.equal(inf.LayerNorm(eps).kernel(x)[0], torch.zeros(2))


class TestRange:
    @pytest.mark.parametrize("kind", ["nngp", "ntk"])
    @pytest.mark.parametrize("activation", ["relu", "abs"])
    def test_overflow_is_told(self, kind: inf.Kind, activation: str, tmp_path: Path):
        net, x = inf.mlp(300, 5.0, 0.1, activation=activation), rows(4).float()
        with pytest.warns(NumericsWarning, match="overflowed in float32: use float64") as caught:
            net.kernel(x, kind=kind)
        assert len(caught) == 1
        with pytest.warns(NumericsWarning, match="overflowed"):
            net.kernel(x, x[:2], kind=kind)
        with pytest.warns(NumericsWarning, match="overflowed"):
            net.diagonal(x, kind=kind)
        with pytest.warns(NumericsWarning, match="overflowed"):
            net.kernel(x, kind=kind, out=tmp_path / "k.npy")
        with pytest.warns(NumericsWarning, match="overflowed"):
            net.kernel(x.clone().requires_grad_(), kind=kind)
        assert torch.isfinite(net.kernel(x.double(), kind=kind)).all()

    @pytest.mark.parametrize("size", [1e-100, 1e-150, 1e-165, 1e-300, 1e-310, 1e70])
    @pytest.mark.parametrize("kind", ["nngp", "ntk"])
    @pytest.mark.parametrize("activation", ["relu", "erf", "gelu"])
    def test_parallel_rows_of_very_different_length(self, size: float, kind: inf.Kind, activation: str):
        a = torch.tensor([0.3, -1.7, 2.9], dtype=torch.float64)
        K = inf.mlp(1, activation=activation).kernel(torch.stack([a, size * a]), kind=kind)
        assert torch.isfinite(K).all()

    def test_small_rows_keep_their_angle(self):
        a = torch.tensor([0.3, -1.7, 2.9], dtype=torch.float64)
        b = a + 1e-7 * torch.tensor([1.0, 0.5, -0.25], dtype=torch.float64)
        net = inf.Sequential(inf.Sign())
        K, small = net.kernel(torch.stack([a, b])), net.kernel(2.0**-500 * torch.stack([a, b]))
        assert torch.equal(K, small)


def test_memory_is_asked_for_with_gradients_too():
    net = inf.Sequential(inf.Conv2d(3, padding="same"), inf.ReLU(), inf.GlobalAvgPool2d())
    x = torch.zeros(1, 1, 512, 512)
    with pytest.raises(MemoryLimitError, match="one pair of images") as plain:
        net.kernel(x)
    with pytest.raises(MemoryLimitError) as learning:
        net.kernel(x.clone().requires_grad_())
    assert str(learning.value).split(" needs ")[0] == str(plain.value).split(" needs ")[0]
    kernel = inf.InfiniteWidthKernel(net, input_shape=(1, 512, 512))
    with pytest.raises(MemoryLimitError, match="one pair of images"):
        kernel.forward(x.flatten(1), x.flatten(1))
    many = torch.zeros(1, 1, requires_grad=True).expand(3_000_000, 1)
    with pytest.raises(MemoryLimitError, match="with gradients"):
        inf.mlp(1).kernel(many)
