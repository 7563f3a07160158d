"""Edges: odd paths, damaged files, values out of range, options of the wrong type."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from exact import RULES, dense_kernels
from torch.nn import functional

import gdkl.infinite as inf
from gdkl.infinite.activation import Pair
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

    @pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
    def test_files_follow_the_umask(self, mask: int, tmp_path: Path):
        before = os.umask(mask)
        try:
            inf.mlp().kernel(rows(3), out=tmp_path / "k.npy", cache_dir=tmp_path / "cache")
            inf.tiled_kernel(inf.mlp(), rows(3), out=tmp_path / "t.npy", devices=["cpu"])
        finally:
            os.umask(before)
        files = [tmp_path / "k.npy", tmp_path / "t.npy", *(tmp_path / "cache").iterdir()]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o666 & ~mask] * 3
        assert len(list(tmp_path.iterdir())) == 3


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


@pytest.mark.parametrize("eps", [0.0, 1e-300, 1e-60, 1e-5])
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_of_layer_norm_at_a_zero_row(eps: float, kind: inf.Kind, dtype: torch.dtype):
    net = inf.Sequential(inf.LayerNorm(eps), inf.Linear(), *inf.mlp(1).layers)
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [1.0, 0.0, 1.0]], dtype=dtype, requires_grad=True)
    (both,) = torch.autograd.grad(net.kernel(x, kind=kind).sum(), x)
    (diagonal,) = torch.autograd.grad(net.diagonal(x, kind=kind).sum(), x)
    assert torch.isfinite(both).all()
    assert torch.isfinite(diagonal).all()
    assert not diagonal[0].any()
    if eps < 1e-50:
        # The other rows do not notice.
        (alone,) = torch.autograd.grad(net.kernel(x[1:], kind=kind).sum(), x)
        torch.testing.assert_close(both[1:], alone[1:])
    if eps == 0:
        assert not both[0].any()


class TestRange:
    @pytest.mark.parametrize("kind", ["nngp", "ntk"])
    @pytest.mark.parametrize("activation", ["relu", "abs"])
    def test_overflow_is_told(self, kind: inf.Kind, activation: str, tmp_path: Path):
        net, x = inf.mlp(110, 5.0, 0.1, activation=activation), rows(4).float()
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


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            (None, "list of layers"),
            ("abc", "list of layers"),
            ([1], "a mapping"),
            ([{"op": "act", "name": ["relu"]}], "is not known"),
            ([{"op": "act"}], "lacks the entries name"),
            ([{"op": ["dense"]}], "is not known"),
            ([{"op": "dense"}], "lacks the entries w_var, b_var"),
            (
                [{"op": "conv", "filter": [3, 3], "w_var": 1.0, "b_var": 0.0}],
                "lacks the entries strides, padding",
            ),
            ([{"op": "dense", "w_var": 1.0, "b_var": 0.0, "c": 1}], "does not take the entries c"),
            ([{"op": "act", "name": "relu", "alpha": 1}], "does not take the entries alpha"),
            ([{"op": "residual", "main": None, "shortcut": []}], "list of layers"),
            (
                [
                    {
                        "op": "avgpool",
                        "window": [2, 2],
                        "strides": [2, 2],
                        "padding": "VALID",
                        "normalize_edges": "no",
                    }
                ],
                "normalize_edges must be true or false",
            ),
        ],
    )
    def test_say_what_is_wrong(self, spec: Any, says: str):
        with pytest.raises(OptionError, match=says):
            inf.from_spec(spec)


class TestArrays:
    def test_arguments_by_their_names(self):
        with pytest.raises(DataError, match=r"^x must have shape"):
            inf.mlp().diagonal(torch.ones(3))
        with pytest.raises(DataError, match=r"^x must be finite; row 1"):
            inf.mlp().diagonal(torch.tensor([[1.0], [float("nan")]]))
        with pytest.raises(DataError, match=r"^x1 must have shape"):
            inf.mlp().kernel(torch.ones(3))

    def test_other_byte_order_and_precision(self):
        x = rows(4).numpy()
        K = inf.mlp().kernel(x)
        assert np.array_equal(inf.mlp().kernel(x.astype(">f8")), K)
        assert np.array_equal(inf.mlp().kernel(x.astype(np.longdouble)), K)
        assert inf.mlp().kernel(x.astype(">f4")).dtype == np.float32
        assert np.array_equal(inf.mlp().kernel(np.ones((2, 2), ">i4")), inf.mlp().kernel(np.ones((2, 2))))

    def test_ragged_rows(self):
        ragged: Any = [[1.0, 2.0], [3.0]]
        with pytest.raises(DataError, match="rows of one length"):
            inf.mlp().kernel(ragged)


class TestOptions:
    def test_whole_floats_are_whole(self):
        x, memory, jobs = rows(4), 1e6, 2.0
        K = inf.mlp().kernel(x, memory=memory, n_jobs=jobs)  # pyright: ignore[reportArgumentType]
        assert torch.equal(K, inf.mlp().kernel(x))

    @pytest.mark.parametrize(
        "options",
        [
            {"memory": "1GB"},
            {"memory": 0.5},
            {"memory": float("nan")},
            {"memory": True},
            {"n_jobs": 2.5},
            {"n_jobs": "2"},
            {"progress": True},
        ],
    )
    def test_of_the_work(self, options: Any):
        with pytest.raises(OptionError, match=next(iter(options))):
            inf.mlp().kernel(rows(3), **options)

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: inf.mlp(2.5), "hidden_layers"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.mlp("2"), "hidden_layers"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.wide_resnet(1.5), "blocks"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.mlp().finite(2.5), "width"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.mlp().finite(8, 1.5), "outputs"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.Conv2d(True), "kernel_size"),
            (lambda: inf.Conv2d((3, False)), "kernel_size"),
            (lambda: inf.Conv2d(3.0), "kernel_size"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.AvgPool2d(2, stride=True), "stride"),
            (lambda: inf.Linear("1"), "weight_var must be a number"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.Linear(True), "weight_var must be a number"),
            (lambda: inf.Linear(1.0, np.False_), "bias_var must be a number"),  # pyright: ignore[reportArgumentType]
            (lambda: inf.LeakyReLU("a"), "alpha must be a number"),  # pyright: ignore[reportArgumentType]
        ],
    )
    def test_of_networks(self, make: Callable[[], Any], says: str):
        with pytest.raises(OptionError, match=says):
            make()

    def test_numbers_of_numpy(self):
        three: Any = np.int64(3)
        net = inf.Conv2d(three, (three, np.int32(2)), padding=three)
        assert (net.window.size, net.window.stride, net.window.padding) == ((3, 3), (3, 2), (3, 3))
        assert json.loads(json.dumps(net.to_spec())) == net.to_spec()
        assert len(inf.mlp(np.int64(2)).layers) == 5  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "layer",
    [
        inf.Conv2d(3, 2, "same", weight_var=1.5),
        inf.Conv2d((3, 1), (1, 2), (1, 0), "circular", bias_var=0.5),
        inf.Conv2d(1),
        inf.AvgPool2d(2, count_include_pad=False),
        inf.AvgPool2d(3, 1, "same"),
    ],
)
def test_layers_print_as_they_are_made(layer: Any):
    again = eval(repr(layer), {"Conv2d": inf.Conv2d, "AvgPool2d": inf.AvgPool2d})
    assert again.to_spec() == layer.to_spec()
    assert "kernel_size=" in repr(layer)


class TestQuadrature:
    @pytest.mark.parametrize("fn", [torch.abs, torch.sign])
    def test_kinks_and_steps_are_told_once(self, fn: Callable[[torch.Tensor], torch.Tensor]):
        net = inf.Sequential(inf.Linear(1.0, 0.1), inf.Elementwise(fn), inf.Linear())
        with pytest.warns(NumericsWarning, match="relative error of about") as caught:
            net.kernel(rows(20))
        net.kernel(rows(20))
        assert len(caught) == 1

    @pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")
    @pytest.mark.parametrize(
        ("fn", "closed"),
        [(functional.relu, inf.ReLU()), (torch.abs, inf.Abs()), (functional.leaky_relu, inf.LeakyReLU())],
    )
    def test_a_kink_at_zero_is_exact_on_the_diagonal_and_gains_by_the_order(self, fn: Any, closed: inf.InfiniteNetwork):
        x = rows(30)

        def ntk(phi: inf.InfiniteNetwork) -> torch.Tensor:
            return inf.Sequential(inf.Linear(1.6, 0.1), phi, inf.Linear()).kernel(x, kind="ntk")

        exact = ntk(closed)
        errors = [ntk(inf.Elementwise(fn, order)) - exact for order in (32, 512)]
        assert all(float(error.diagonal().abs().max()) < 1e-12 for error in errors)
        assert errors[0].abs().max() > 4 * errors[1].abs().max()

    def test_an_order_that_does_not_help_is_not_advised(self, monkeypatch: pytest.MonkeyPatch):
        net = inf.Sequential(inf.Linear(1.6, 0.1), inf.Elementwise(functional.hardtanh), inf.Linear())
        x = rows(12)
        with pytest.warns(NumericsWarning) as caught:
            K = net.diagonal(x, kind="ntk")
        told = [str(warning.message) for warning in caught]
        assert len(told) == 2
        assert all("a larger order does not mend" in text and "closed form (ReLU" in text for text in told)
        monkeypatch.setattr("gdkl.infinite.elementwise.SPACING", 1 / 4096)
        finer = inf.Elementwise(functional.hardtanh, order=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exact = inf.Sequential(inf.Linear(1.6, 0.1), finer, inf.Linear()).diagonal(x, kind="ntk")
        # What is told of the derivative covers the NTK's error, and is not far above it.
        error = float(((K - exact) / exact).abs().max())
        assert error < float(told[1].split("about ")[1].split(" in its derivative")[0]) < 20 * error

    def test_the_largest_order_is_not_to_be_made_larger(self):
        x = rows(1)
        with pytest.warns(NumericsWarning, match="about .*: use smaller variances"):
            inf.Elementwise(torch.sign, order=512).kernel(torch.cat([x, x + 0.1]))

    def test_a_function_that_gives_nan_is_named(self):
        with pytest.raises(OptionError, match=r"fn must give a number.*fn is NaN at -"):
            inf.Elementwise(torch.sqrt).kernel(rows(3))
        with pytest.raises(OptionError, match="the derivative of fn is NaN at 0"):
            inf.Elementwise(lambda x: x.abs().sqrt()).kernel(torch.zeros(2, 3), kind="ntk")

    @pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
    @pytest.mark.parametrize("fn", [np.tanh, lambda x: torch.tanh(x.detach())])
    def test_a_function_without_a_derivative_is_named(self, fn: Any):
        torch.testing.assert_close(inf.Elementwise(fn).kernel(x := rows(3)), inf.Elementwise(torch.tanh).kernel(x))
        with pytest.raises(OptionError, match="fn must be made of torch's operations"):
            inf.Elementwise(fn).kernel(x, kind="ntk")
        with pytest.raises(OptionError, match="fn must be made of torch's operations"):
            inf.Elementwise(fn).kernel(x.requires_grad_())

    def test_large_variances_are_told(self):
        with pytest.warns(NumericsWarning, match="smaller variances"):
            inf.Elementwise(torch.tanh).kernel(100 * rows(20))

    def test_pairs_that_need_more_terms_are_told(self):
        x = rows(1)
        with pytest.warns(NumericsWarning, match="larger order"):
            inf.Elementwise(torch.tanh, order=8).kernel(3 * torch.cat([x, x + 0.4]))

    @pytest.mark.parametrize("kind", ["nngp", "ntk"])
    @pytest.mark.parametrize("fn", [torch.tanh, torch.nn.functional.silu, torch.nn.functional.softplus])
    def test_smooth_functions_are_not(self, fn: Callable[[torch.Tensor], torch.Tensor], kind: inf.Kind):
        inf.Sequential(inf.Linear(2.0, 0.1), inf.Elementwise(fn), inf.Linear()).kernel(rows(20), kind=kind)


class TestDifferingVariances:
    """Deficits that differing variances cause, in 60 digits."""

    @pytest.mark.parametrize("q", [0.1, 1.0, 10.0, 1e3])
    @pytest.mark.parametrize("by", [1e-9, 1e-6, 1e-3, 0.1, 10.0])
    @pytest.mark.parametrize("t", [0.0, 1e-18, 1e-12, 1e-3])
    @pytest.mark.parametrize("name", ["erf", "gelu"])
    def test_one_layer(self, q: float, by: float, t: float, name: str):
        layer: Any = inf.Erf() if name == "erf" else inf.GELU()
        options = {"a": 1, "b": 1, "c": 0} if name == "erf" else {}
        q1, q2 = mp.mpf(q), mp.mpf(q * (1 + by))
        for first, second in ((q1, q2), (q2, q1)):
            k = mp.sqrt(first * second) * (1 - mp.mpf(t))
            scale = mp.sqrt(
                RULES[name](first, first, first, **options)[0] * RULES[name](second, second, second, **options)[0]
            )
            exact = 1 - RULES[name](first, second, k, **options)[0] / scale
            numbers = (float(first), float(second), t, 2 - t)
            got = layer.deficit(Pair(*(torch.tensor([number], dtype=torch.float64) for number in numbers)))
            assert abs(float(got) - exact) <= 2e-11 * exact

    @pytest.mark.parametrize("activation", ["erf", "gelu"])
    def test_sixty_layers(self, activation: str):
        a, b = rows(2, 5)
        x = torch.stack([a, a + 1e-6 * b]).numpy()
        net = inf.mlp(60, 3.0, 0.1, activation=activation)
        nngp, ntk = dense_kernels(net.to_spec(), x)
        assert np.allclose(net.kernel(x), nngp, rtol=1e-12, atol=0)
        assert np.allclose(net.kernel(x, kind="ntk"), ntk, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("phase", [0.0, 0.4])
def test_waves_of_tiny_inputs(kind: str, phase: float):
    """Where sin is nearly the identity, its correlation must not drown in rounding."""
    x = 1e-6 * np.random.default_rng(1).standard_normal((5, 3))
    layers = [
        {"op": "dense", "w_var": 5.0, "b_var": 0.0},
        {"op": "act", "name": "sin", "a": 1.0, "b": 2.0, "c": phase},
        {"op": "dense", "w_var": 1.0, "b_var": 0.0},
    ]
    expected = dense_kernels(layers, x)[0 if kind == "nngp" else 1]
    scale = np.sqrt(expected.diagonal())
    ours = inf.from_spec(layers).kernel(x, kind=kind)
    assert np.all(abs(ours - expected) <= 1e-13 * np.outer(scale, scale))


@pytest.mark.parametrize("name", ["cos", "sin"])
def test_waves_of_tiny_inputs_beside_zero(name: str):
    """cos(0) and cos of next to nothing differ by the square of a variance, which a kink behind them shows."""
    x = np.array([[0.0, 0.0], [1e-6, 2e-6], [-3e-6, 1e-6], [1e-3, 0.0]])
    layers = [
        {"op": "dense", "w_var": 5.0, "b_var": 0.0},
        {"op": "act", "name": name, "a": 1.0, "b": 0.5, "c": 0.0 if name == "cos" else 0.4},
        {"op": "dense", "w_var": 5.0, "b_var": 0.0},
        {"op": "act", "name": "relu"},
        {"op": "dense", "w_var": 2.0, "b_var": 0.1},
    ]
    for kind, expected in zip(("nngp", "ntk"), dense_kernels(layers, x), strict=True):
        scale = np.sqrt(expected.diagonal())
        ours = inf.from_spec(layers).kernel(x, kind=kind)
        assert np.all(abs(ours - expected) <= 1e-13 * np.outer(scale, scale)), kind


class TestUnchecked:
    def test_nothing_is_looked_at_within_and_everything_after(self):
        bad = rows(3)
        bad[1, 0] = float("nan")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with inf.unchecked():
                assert bool(inf.mlp().kernel(bad).isnan().any())
                assert bool(inf.mlp().kernel(rows(3), bad).isnan().any())
                assert bool(inf.mlp().kernel(1e300 * rows(3)).isinf().any())
        with pytest.raises(DataError, match="row 1 has a NaN"):
            inf.mlp().kernel(bad)
        with pytest.warns(NumericsWarning, match="overflowed"):
            inf.mlp().kernel(1e300 * rows(3))

    def test_values_are_the_same(self):
        x = rows(5)
        with inf.unchecked():
            found = inf.mlp().kernel(x)
        torch.testing.assert_close(found, inf.mlp().kernel(x), rtol=0, atol=0)

    def test_an_error_within_ends_it(self):
        with pytest.raises(ZeroDivisionError), inf.unchecked():
            raise ZeroDivisionError
        with pytest.raises(DataError, match="finite"):
            inf.mlp().kernel(rows(2) * float("inf"))
