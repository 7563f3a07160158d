"""Fully connected networks: the contract, and what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from contract import NetworkContract

import gdkl.infinite as inf
from gdkl.numerics import DataError, OptionError


class TestReLU(NetworkContract):
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=3)


class TestReLUWithoutBias(NetworkContract):
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=2, weight_var=2.0, bias_var=0.0)


class TestOneFeature(NetworkContract):
    shape = (1,)
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=2)


class TestErf(NetworkContract):
    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=2, activation="erf")


class TestErfShifted(NetworkContract):
    def net(self) -> inf.InfiniteNetwork:
        return inf.Sequential(inf.Linear(1.5, 0.0), inf.Erf(0.7, 1.3, 0.4), inf.Linear(1.2, 0.1), inf.Erf())


class TestLeakyReLU(NetworkContract):
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=2, activation=inf.LeakyReLU(0.2))


class TestLinearNetwork(NetworkContract):
    def net(self) -> inf.InfiniteNetwork:
        return inf.Sequential(inf.Linear(1.5, 0.3), inf.Identity(), inf.Linear(0.5, 0.2))


class TestManyFeatures(NetworkContract):
    shape = (40,)
    smooth_ntk = False

    def net(self) -> inf.InfiniteNetwork:
        return inf.mlp(hidden_layers=1)


def test_variance_recursion():
    x = torch.randn(7, 4, dtype=torch.float64)
    q = x.square().mean(1)
    for _ in range(3):
        q = 1.6 * q + 0.2
        q = q / 2
    torch.testing.assert_close(inf.mlp().diagonal(x), 1.6 * q + 0.2, rtol=1e-15, atol=0)


def test_one_relu_layer_by_hand():
    x1, x2 = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    net = inf.Sequential(inf.Linear(2.0), inf.ReLU())
    theta = math.pi / 4
    expected = math.sqrt(2) / (2 * math.pi) * (math.sin(theta) + (math.pi - theta) * math.cos(theta))
    assert net.kernel(x1, x2).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("features", [3, 60])
def test_near_rows_keep_their_distance(gap: float, features: int):
    """The sign kernel is 1 − (2/π)·angle, so that it shows the angle between rows that almost agree."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(1, features, dtype=torch.float64)
    x[0, 0] = 1
    y = x.clone()
    y[0, 1] = gap
    rotation = torch.linalg.qr(torch.randn(features, features, generator=generator, dtype=torch.float64))[0]
    net = inf.Sequential(inf.Linear(), inf.Sign())
    k = net.kernel(x @ rotation, y @ rotation).item()
    # The rotation itself rounds, at about 1e-16 of the length.
    assert 1 - k == pytest.approx(2 / math.pi * math.atan(gap), abs=5e-16)


def test_sixty_layers_stay_finite():
    x = torch.randn(4, 3, dtype=torch.float32)
    x[3] = x[0]
    for kind in ("nngp", "ntk"):
        K = inf.mlp(hidden_layers=60, weight_var=2.0, bias_var=0.05).kernel(x, kind=kind)
        assert torch.isfinite(K).all()
        # Sixty roundings, each of half an ulp.
        assert K[0, 3] == pytest.approx(K[0, 0].item(), rel=60 * 2**-24)


def test_whole_numbers_become_float64():
    K = inf.mlp().kernel(np.array([[1, 2], [3, 4]]))
    assert K.dtype == np.float64
    assert np.array_equal(K, inf.mlp().kernel(np.array([[1.0, 2.0], [3.0, 4.0]])))


def test_mixed_precision_takes_the_higher():
    x = torch.randn(3, 2)
    assert inf.mlp().kernel(x, x.double()).dtype == torch.float64


def test_layers_are_networks():
    assert isinstance(inf.ReLU(), inf.InfiniteNetwork)
    assert isinstance(inf.mlp(), inf.InfiniteNetwork)


class TestBadInput:
    def test_nan_rows(self):
        x = np.ones((3, 2))
        x[1, 0] = np.nan
        with pytest.raises(DataError, match="row 1"):
            inf.mlp().kernel(x)

    @pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (3, 0)])
    def test_shapes(self, shape: tuple[int, ...]):
        with pytest.raises(DataError):
            inf.mlp().kernel(np.ones(shape))

    def test_feature_counts(self):
        with pytest.raises(DataError, match="one shape"):
            inf.mlp().kernel(np.ones((3, 2)), np.ones((3, 4)))

    def test_words(self):
        with pytest.raises(DataError, match="real numbers"):
            inf.mlp().kernel(np.array([["a"]]))

    def test_kind(self):
        with pytest.raises(OptionError, match="nngp"):
            inf.mlp().kernel(np.ones((3, 2)), kind="gp")

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "much"])
    def test_variances(self, value: object):
        with pytest.raises(OptionError, match="weight_var"):
            inf.Linear(weight_var=value)
        with pytest.raises(OptionError, match="bias_var"):
            inf.Linear(bias_var=value)

    def test_specs(self):
        for bad in ({"op": "pool"}, {"op": "act", "name": "rolu"}, {"op": "dense", "w": 1.0}, {}):
            with pytest.raises(OptionError):
                inf.from_spec([bad])
        with pytest.raises(OptionError, match="does not take"):
            inf.from_spec([{"op": "act", "name": "relu", "alpha": 1.0}])
