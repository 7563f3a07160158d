"""Networks on images: the contract, 60 digits at hard images, and the errors that images can cause."""

from __future__ import annotations

from typing import Any

import exact_images
import numpy as np
import pytest
import torch
from contract import NetworkContract

import gdkl.infinite as inf
from gdkl.numerics import DataError, MemoryLimitError, OptionError


def conv(w: float, b: float, padding: str = "SAME", stride: int = 1) -> dict[str, Any]:
    return {
        "op": "conv",
        "filter": [3, 3],
        "strides": [stride, stride],
        "padding": padding,
        "w_var": w,
        "b_var": b,
    }


def networks(activation: dict[str, Any], w: float, b: float) -> dict[str, list[dict[str, Any]]]:
    dense, flatten = {"op": "dense", "w_var": w, "b_var": b}, {"op": "flatten"}
    pool = {
        "op": "avgpool",
        "window": [2, 2],
        "strides": [1, 1],
        "padding": "VALID",
        "normalize_edges": False,
    }
    down = {
        "op": "residual",
        "main": [activation, conv(w, b, stride=2)],
        "shortcut": [conv(w, b, stride=2)],
    }
    skip = {"op": "residual", "main": [activation, conv(w, b)], "shortcut": []}
    norm = {"op": "layer_norm", "eps": 1e-12}
    return {
        "flatten": [conv(w, b), activation, conv(w, b), activation, flatten, dense],
        "global": [
            conv(w, b),
            activation,
            conv(w, b, "CIRCULAR"),
            activation,
            {"op": "global_avg_pool"},
            dense,
        ],
        "pool": [conv(w, b), activation, pool, conv(w, b), activation, flatten, dense],
        "norm": [conv(w, b), norm, activation, conv(w, b), norm, activation, flatten, dense],
        "residual": [conv(w, b), skip, down, activation, flatten, dense],
    }


def hard_images(channels: int) -> np.ndarray:
    """Plain, identical, parallel, antipodal, zero, huge and tiny images, exact in float32 (powers of two)."""
    x = np.random.default_rng(0).standard_normal((2, channels, 3, 2)).astype(np.float32)
    return np.concatenate(
        [x, x[:1], 4 * x[1:2], -x[:1], 0 * x[:1], 2**13 * x[1:], 2.0**-20 * x[1:], -(2**14) * x[1:]]
    ).astype(np.float32)


ERF = {"op": "act", "name": "erf", "a": 1.0, "b": 1.0, "c": 0.0}


@pytest.mark.parametrize("form", ["flatten", "global", "pool", "norm", "residual"])
@pytest.mark.parametrize("activation", [{"op": "act", "name": "relu"}, {"op": "act", "name": "sign"}, ERF], ids=str)
@pytest.mark.parametrize("b", [0.0, 0.2])
def test_hard_images_against_sixty_digits(form: str, activation: dict[str, Any], b: float):
    layers = networks(activation, 1.6, b)[form]
    x = hard_images(1 if activation is ERF else 2)
    net = inf.from_spec(layers)
    for kind, reference in zip(("nngp", "ntk"), exact_images.image_kernels(layers, x), strict=True):
        scale = np.sqrt(np.outer(reference.diagonal(), reference.diagonal()))
        for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-6)):
            for K in (
                net.kernel(x.astype(dtype), kind=kind),
                net.kernel(x.astype(dtype), x.astype(dtype), kind=kind),
            ):
                assert np.all(abs(K - reference) <= tolerance * scale)


class _Images(NetworkContract):
    shape = (2, 4, 3)
    form = ""
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.from_spec(networks({"op": "act", "name": "relu"}, 1.6, 0.2)[self.form])


class TestFlatten(_Images):
    form = "flatten"


class TestGlobalAvgPool(_Images):
    form = "global"


class TestAvgPool(_Images):
    form = "pool"


class TestLayerNorm(_Images):
    form = "norm"


class TestResidual(_Images):
    form = "residual"


class TestSmooth(NetworkContract):
    shape = (1, 3, 3)

    def net(self) -> inf.InfiniteNetwork:
        return inf.Sequential(
            inf.Conv2d(2, padding=1, padding_mode="circular", weight_var=1.2, bias_var=0.1),
            inf.GELU(),
            inf.AvgPool2d(2, padding="same", count_include_pad=False),
            inf.Linear(0.8, 0.1),
            inf.Residual(inf.Sequential(inf.Erf(), inf.Dropout(0.2), inf.Linear(1.1, 0.2)), inf.Linear(0.3)),
            inf.GlobalAvgPool2d(),
            inf.Sin(),
        )


def test_dense_residual_and_norm_need_no_images():
    branch = inf.Sequential(inf.ReLU(), inf.Linear())
    net = inf.Sequential(inf.Linear(1.5), inf.LayerNorm(), inf.Residual(branch), inf.Flatten(), inf.Linear())
    x = torch.randn(4, 3, dtype=torch.float64)
    q = 1.5 * x.square().mean(1)
    torch.testing.assert_close(net.diagonal(x), 1.5 * q / (q + 1e-5))


def test_pixels_are_paired_only_where_a_pooling_needs_them():
    """Ninety images of 32 × 32 would take terabytes by pixel pairs."""
    x = torch.randn(4, 3, 32, 32)
    net = inf.Sequential(inf.Conv2d(3, padding="same"), inf.ReLU(), inf.Flatten())
    assert not net.program().needs_pairs
    assert net.kernel(x).shape == (4, 4)
    assert inf.Sequential(inf.Conv2d(3), inf.GlobalAvgPool2d()).program().needs_pairs
    assert inf.Sequential(inf.Residual(inf.AvgPool2d(1), inf.Conv2d(1)), inf.Flatten()).program().needs_pairs


@pytest.mark.parametrize(
    ("size", "stride", "expected"), [(8, 2, (0, 1)), (7, 2, (1, 1)), (8, 1, (1, 1)), (8, 3, (0, 1))]
)
def test_same_padding_is_low_first(size: int, stride: int, expected: tuple[int, int]):
    assert inf.Conv2d(3, stride, "same").window.pads(size, size) == (expected, expected)


def test_int_padding_is_symmetric():
    x = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    for mode in ("zeros", "circular"):
        ours = inf.Sequential(inf.Conv2d(3, padding=1, padding_mode=mode), inf.ReLU(), inf.Flatten())
        same = inf.Sequential(inf.Conv2d(3, padding="same", padding_mode=mode), inf.ReLU(), inf.Flatten())
        torch.testing.assert_close(ours.kernel(x), same.kernel(x))
        again = inf.from_spec(ours.to_spec())
        assert again.to_spec() == ours.to_spec()
        assert torch.equal(again.kernel(x), ours.kernel(x))


class TestBadInput:
    def test_no_read_out(self):
        with pytest.raises(DataError, match="Flatten"):
            inf.Sequential(inf.Conv2d(3), inf.ReLU()).kernel(torch.ones(1, 1, 4, 4))

    def test_vectors(self):
        for layer in (inf.Conv2d(3), inf.AvgPool2d(2), inf.GlobalAvgPool2d()):
            with pytest.raises(DataError, match="images"):
                inf.Sequential(layer, inf.Flatten()).kernel(torch.ones(2, 5))

    def test_window_larger_than_the_image(self):
        for layer in (inf.Conv2d(5), inf.AvgPool2d(5), inf.AvgPool2d((1, 9), padding=1)):
            with pytest.raises(DataError, match="does not fit"):
                inf.Sequential(layer, inf.Flatten()).kernel(torch.ones(1, 1, 4, 4))

    def test_channels_and_sizes(self):
        net = inf.Sequential(inf.Conv2d(3), inf.Flatten())
        for shape in ((1, 2, 4, 4), (1, 3, 5, 4)):
            with pytest.raises(DataError, match="one shape"):
                net.kernel(torch.ones(1, 3, 4, 4), torch.ones(shape))

    def test_branches_of_different_size(self):
        net = inf.Sequential(inf.Residual(inf.Conv2d(3)), inf.Flatten())
        with pytest.raises(DataError, match="branches"):
            net.kernel(torch.ones(1, 1, 4, 4))

    def test_nan_image(self):
        x = torch.ones(3, 1, 4, 4)
        x[2, 0, 1, 1] = float("nan")
        with pytest.raises(DataError, match="row 2"):
            inf.Sequential(inf.Conv2d(3), inf.Flatten()).kernel(x)

    def test_options(self):
        for arguments in ({"kernel_size": 0}, {"kernel_size": (3, 3, 3)}, {"kernel_size": 3, "stride": 0}):
            with pytest.raises(OptionError, match="whole number"):
                inf.Conv2d(**arguments)
        for padding in ("some", -1, 1.5):
            with pytest.raises(OptionError, match="padding"):
                inf.Conv2d(3, padding=padding)
        with pytest.raises(OptionError, match="padding_mode"):
            inf.Conv2d(3, padding_mode="reflect")
        with pytest.raises(OptionError, match="weight_var"):
            inf.Conv2d(3, weight_var=-1.0)
        with pytest.raises(OptionError, match="eps"):
            inf.LayerNorm(eps=-1.0)

    def test_images_too_large_for_pixel_pairs(self):
        net = inf.Sequential(inf.Conv2d(3), inf.GlobalAvgPool2d())
        with pytest.raises(MemoryLimitError, match="GiB"):
            net.kernel(torch.ones(2, 1, 512, 512))


def test_windows_that_lie_in_the_padding_alone():
    # One pixel, padded by one on both sides, read at its first and last place: nothing but zeros and biases.
    net = inf.Sequential(inf.Conv2d(1, stride=2, padding=1, weight_var=2.0, bias_var=0.3), inf.Flatten())
    x = torch.ones(2, 1, 1, 1)
    torch.testing.assert_close(net.kernel(x), torch.full((2, 2), 0.3))
    torch.testing.assert_close(net.kernel(x.clone().requires_grad_()).detach(), torch.full((2, 2), 0.3))
