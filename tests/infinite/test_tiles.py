"""Matrices in tiles: the same numbers, several workers, interruptions."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
import torch

import gdkl.infinite as inf
from gdkl.numerics import OptionError

net = inf.mlp(hidden_layers=2)


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("other", [None, 7])
def test_same_as_the_whole_kernel(kind: str, other: int | None, tmp_path):
    x1, x2 = rows(11), None if other is None else rows(other, 1)
    K = inf.tiled_kernel(net, x1, x2, kind, out=tmp_path / "k.npy", tile=4, devices=["cpu", "cpu"])
    np.testing.assert_allclose(K, net.kernel(x1, x2, kind=kind), rtol=1e-13)
    assert [file.name for file in tmp_path.iterdir()] == ["k.npy"]


def test_float32_stays(tmp_path):
    x = torch.randn(5, 3)
    K = inf.tiled_kernel(net, x, out=tmp_path / "k.npy", tile=2, devices=["cpu"])
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, net.kernel(x).numpy(), rtol=1e-6)


def stop_after(tiles: int):
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == tiles:
            raise KeyboardInterrupt

    return progress


def test_goes_on_where_it_was_interrupted(tmp_path):
    x, path = rows(12), tmp_path / "k.npy"
    with pytest.raises(KeyboardInterrupt):
        inf.tiled_kernel(net, x, out=path, tile=4, devices=["cpu"], progress=stop_after(2))
    assert not path.exists()
    # What is done is not touched again: a mark on it survives.
    partial = np.lib.format.open_memmap(tmp_path / "k.partial.npy", mode="r+")
    partial[0, 0] = -1.0
    partial.flush()
    seen: list[tuple[int, int]] = []
    K = inf.tiled_kernel(net, x, out=path, tile=4, devices=["cpu"], progress=lambda *done: seen.append(done))
    assert len(seen) == 4
    assert seen[-1] == (144, 144)
    assert K[0, 0] == -1.0
    expected = net.kernel(x)
    expected[0, 0] = -1.0
    np.testing.assert_allclose(K, expected, rtol=1e-13)


@pytest.mark.parametrize("change", ["data", "network", "tile"])
def test_other_work_starts_anew(change: str, tmp_path):
    path = tmp_path / "k.npy"
    with pytest.raises(KeyboardInterrupt):
        inf.tiled_kernel(net, rows(12), out=path, tile=4, devices=["cpu"], progress=stop_after(2))
    other = inf.mlp(hidden_layers=1) if change == "network" else net
    x = rows(12, seed=5 if change == "data" else 0)
    K = inf.tiled_kernel(other, x, out=path, tile=6 if change == "tile" else 4, devices=["cpu"])
    np.testing.assert_allclose(K, other.kernel(x), rtol=1e-13)


def test_a_journal_that_was_cut_off_counts_whole_lines(tmp_path):
    x, path = rows(12), tmp_path / "k.npy"
    with pytest.raises(KeyboardInterrupt):
        inf.tiled_kernel(net, x, out=path, tile=4, devices=["cpu"], progress=stop_after(3))
    journal = tmp_path / "k.journal"
    journal.write_text(journal.read_text()[:-2])
    seen: list[tuple[int, int]] = []
    K = inf.tiled_kernel(net, x, out=path, tile=4, devices=["cpu"], progress=lambda *done: seen.append(done))
    assert len(seen) == 4
    np.testing.assert_allclose(K, net.kernel(x), rtol=1e-13)


def test_processes(tmp_path):
    x = rows(9)
    with joblib.parallel_config(backend="loky"):
        K = inf.tiled_kernel(net, x, out=tmp_path / "k.npy", tile=5, devices=["cpu", "cpu"])
    np.testing.assert_allclose(K, net.kernel(x), rtol=1e-13)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"out": "k.txt"}, "npy"),
        ({"out": "missing/k.npy"}, "does not exist"),
        ({"tile": 0}, "tile"),
        ({"devices": []}, "devices"),
        ({"devices": 1}, "devices must name"),
        ({"devices": "tpu"}, "device='tpu' is not known"),
        ({"memory": 0}, "memory"),
        ({"memory": "1GB"}, "memory"),
        ({"progress": True}, "progress"),
        ({"kind": "ntk2"}, "kind"),
    ],
)
def test_bad_options(options: dict, word: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=word):
        inf.tiled_kernel(net, rows(3), **{"out": "k.npy", "devices": ["cpu"], **options})
    assert not list(tmp_path.iterdir())


def test_one_device_by_its_name(tmp_path):
    x = rows(3)
    for device in ("cpu", torch.device("cpu")):
        K = inf.tiled_kernel(net, x, out=tmp_path / "k.npy", devices=device)
        np.testing.assert_allclose(K, net.kernel(x), rtol=1e-13)


def test_functions_cannot_be_known_again(tmp_path):
    with pytest.raises(OptionError, match=r"tiled_kernel knows .* Python function"):
        inf.tiled_kernel(inf.Elementwise(torch.tanh), rows(3), out=tmp_path / "k.npy")
    assert not list(tmp_path.iterdir())
