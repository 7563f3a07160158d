"""Every activation: the contract, 60 digits at hard inputs, and quadrature against the closed forms."""

from __future__ import annotations

from typing import Any

import exact
import numpy as np
import pytest
import torch
from contract import NetworkContract

import gdkl.infinite as inf
from gdkl.numerics import OptionError

PARAMETERS: dict[str, dict[str, float]] = {
    "relu": {},
    "leaky_relu": {"alpha": 0.1},
    "abrelu": {"a": -0.5, "b": 2.0},
    "abs": {},
    "sign": {},
    "erf": {"a": 0.8, "b": 1.5, "c": 0.3},
    "sigmoid_like": {},
    "sin": {"a": 1.2, "b": 0.7, "c": 0.4},
    "cos": {"a": 1.2, "b": 0.7, "c": 0.4},
    "rbf": {"gamma": 0.6},
    "gaussian": {"a": 1.1, "b": -0.8},
    "gelu": {},
}
ODD = {"erf": {"a": 1.0, "b": 1.0, "c": 0.0}, "sin": {"a": 1.0, "b": 1.0, "c": 0.0}}


def layers_of(name: str, hidden: int, w: float, b: float, parameters: dict[str, float]) -> list[dict[str, Any]]:
    dense = {"op": "dense", "w_var": w, "b_var": b}
    return [dense, *[{"op": "act", "name": name, **parameters}, dense] * hidden]


def hard_rows(features: int) -> np.ndarray:
    """Plain, identical, parallel, antipodal, zero, huge, tiny and nearly identical rows, exact in float32."""
    x = np.random.default_rng(1).standard_normal((3, features)).astype(np.float32)
    near = x[:1].copy()
    near[0, 0] *= 1 + 2**-10
    return np.concatenate(
        [x, x[:1], 2 * x[1:2], -x[:1], 0 * x[:1], 1e4 * x[2:], -2e4 * x[2:], 1e-6 * x[2:], near, 1e4 * x[:1]]
    ).astype(np.float32)


@pytest.mark.parametrize("features", [1, 6])
@pytest.mark.parametrize(("w", "b"), [(1.0, 0.0), (1.6, 0.2)])
@pytest.mark.parametrize(("name", "parameters"), [*PARAMETERS.items(), *ODD.items()])
def test_hard_inputs_against_sixty_digits(name: str, parameters: dict[str, float], w: float, b: float, features: int):
    layers = layers_of(name, 3, w, b, parameters)
    x = hard_rows(features)
    net = inf.from_spec(layers)
    for kind, reference in zip(("nngp", "ntk"), exact.dense_kernels(layers, x), strict=True):
        scale = np.sqrt(np.outer(reference.diagonal(), reference.diagonal()))
        for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-6)):
            for K in (
                net.kernel(x.astype(dtype), kind=kind),
                net.kernel(x.astype(dtype), x.astype(dtype), kind=kind),
            ):
                assert np.all(abs(K - reference) <= tolerance * scale)


class _Activation(NetworkContract):
    name = ""
    shape = (4,)

    def net(self) -> inf.InfiniteNetwork:
        return inf.from_spec(layers_of(self.name, 2, 1.4, 0.1, PARAMETERS[self.name]))


class TestABReLU(_Activation):
    name = "abrelu"
    smooth_ntk = False


class TestAbs(_Activation):
    name = "abs"
    smooth_ntk = False


class TestSign(_Activation):
    name = "sign"

    def test_gradient_is_right(self, kind: str):
        # Its kernel has a kink wherever rows are parallel, so only rows apart from each other can be checked.
        net, x = self.net(), self.x(3)
        others = self.x(2, seed=5)
        assert torch.autograd.gradcheck(
            lambda a, b: net.kernel(a, b, kind=kind), (x.requires_grad_(), others.requires_grad_())
        )


class TestSigmoidLike(_Activation):
    name = "sigmoid_like"


class TestSin(_Activation):
    name = "sin"


class TestCos(_Activation):
    name = "cos"


class TestRBF(_Activation):
    name = "rbf"


class TestGaussian(_Activation):
    name = "gaussian"


class TestGELU(_Activation):
    name = "gelu"


class TestElementwise(NetworkContract):
    shape = (4,)

    def net(self) -> inf.InfiniteNetwork:
        return inf.Sequential(inf.Linear(1.2, 0.1), inf.Elementwise(torch.tanh, order=48), inf.Linear(1.1, 0.1))

    def hard(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        # A finite expansion cannot follow tanh for rows of norm 1e4, where it is a step.
        x = super().hard(dtype)
        return torch.cat([x[:7], x[8:]])

    def test_spec_round_trip(self, kind: str):
        with pytest.raises(OptionError, match="Python function"):
            self.net().to_spec()


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize(
    ("fn", "closed"),
    [
        (torch.erf, inf.Erf()),
        (torch.sin, inf.Sin()),
        (lambda x: torch.exp(-x.square()), inf.Gaussian()),
        (torch.nn.functional.gelu, inf.GELU()),
        (lambda x: 0.5 * torch.erf(x / 2.4020563531719796) + 0.5, inf.SigmoidLike()),
    ],
)
def test_quadrature_matches_the_closed_form(fn: Any, closed: inf.InfiniteNetwork, kind: str):
    x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[3], x[4], x[5] = x[0], -x[0], x[0] / 2
    K, exact_K = (
        inf.Sequential(inf.Linear(0.7, 0.1), phi, inf.Linear(1.5, 0.1)).kernel(x, kind=kind)
        for phi in (inf.Elementwise(fn), closed)
    )
    torch.testing.assert_close(K, exact_K, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")
def test_quadrature_order_is_an_argument():
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    errors = [(inf.Elementwise(torch.erf, order).kernel(x) - inf.Erf().kernel(x)).abs().max() for order in (4, 16, 64)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    for order in (1, 1000):
        with pytest.raises(OptionError, match="order"):
            inf.Elementwise(torch.tanh, order)
    with pytest.raises(OptionError, match="function"):
        inf.Elementwise("tanh")
    with pytest.raises(OptionError, match="shape"):
        inf.Elementwise(torch.sum).kernel(x)


def test_rbf_is_the_squared_exponential():
    x = torch.randn(5, 3, dtype=torch.float64)
    squared = (x[:, None] - x[None]).square().mean(-1)
    torch.testing.assert_close(inf.RBF(0.4).kernel(x), torch.exp(-0.4 * squared), rtol=1e-13, atol=1e-15)


def test_bad_parameters():
    with pytest.raises(OptionError, match="at most 0"):
        inf.Gaussian(b=0.1)
    with pytest.raises(OptionError, match="gamma"):
        inf.RBF(gamma=-1.0)
    with pytest.raises(OptionError, match="a must"):
        inf.LeakyReLU(alpha=float("nan"))


def test_parallel_up_to_rounding():
    """Three layers of sign make 1e-4 of the angle of 1e-17 that rounding leaves between parallel rows."""
    x = np.random.default_rng(2).standard_normal((2, 5))
    x = np.concatenate([x, 3 * x[:1], -0.7 * x[:1], 1e4 * x[1:], -1e-6 * x[1:]])
    layers = layers_of("sign", 3, 1.3, 0.0, {})
    reference, _ = exact.dense_kernels(layers, x)
    # Those angles show: the kernel is not the one of exactly parallel rows.
    assert 1e-6 < 1.3 - reference[0, 2] < 1e-2
    assert np.abs(inf.from_spec(layers).kernel(x) - reference).max() < 1e-12
