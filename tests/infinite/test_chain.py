"""Dense chains in closed form: the same matrices as any engine gives, the same derivatives as finite differences."""

from __future__ import annotations

import pytest
import torch

from gdkl import infinite as inf
from gdkl.infinite import DenseChain

CHAINS = [
    inf.mlp(),
    inf.mlp(hidden_layers=0),
    inf.mlp(hidden_layers=1, bias_var=0.0),
    inf.mlp(hidden_layers=5, weight_var=2.0),
    inf.Sequential(inf.Linear(2.0, 0.1), inf.Linear(0.5, 0.3), inf.LeakyReLU(0.2), inf.Abs(), inf.Linear(1.5)),
    inf.Sequential(inf.ReLU(), inf.Linear(1.0, 0.1)),
]


def _rows(n=12, d=4, seed=0):
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[1], x[2], x[3] = x[0], -x[0], 2 * x[0]  # correlations of one and minus one
    x[4] = x[0] * (1 + 1e-9)
    return x


@pytest.mark.parametrize("network", CHAINS)
@pytest.mark.parametrize("d", [1, 4, 30])
def test_values_are_those_of_the_network(network, d):
    x = _rows(d=d)
    K, _ = DenseChain.of(network).gram(x)
    torch.testing.assert_close(K, network.kernel(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("network", CHAINS)
def test_derivatives_are_those_of_finite_differences(network):
    chain = DenseChain.of(network)
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    G = torch.randn(9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    G = G + G.mT
    pulled = chain.gram(x)[1](G)
    for i, c in ((0, 0), (4, 1), (8, 2)):
        step = torch.zeros_like(x)
        step[i, c] = 1e-6
        numeric = ((chain.gram(x + step)[0] - chain.gram(x - step)[0]) * G).sum() / 2e-6
        torch.testing.assert_close(pulled[i, c], numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("network", CHAINS)
def test_derivatives_at_identical_and_opposite_rows_are_those_of_autograd(network):
    x = _rows().requires_grad_()
    G = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    G = G + G.mT
    (wanted,) = torch.autograd.grad(network.kernel(x), x, G)
    torch.testing.assert_close(DenseChain.of(network).gram(x.detach())[1](G), wanted, rtol=1e-6, atol=1e-6)


def test_a_row_of_zeros_has_finite_derivatives():
    x = _rows()
    x[6] = 0
    K, pullback = DenseChain.of(inf.mlp(hidden_layers=2, bias_var=0.0)).gram(x)
    assert bool((K[6] == 0).all())
    assert bool(torch.isfinite(pullback(torch.ones_like(K))).all())


@pytest.mark.parametrize(
    "network",
    [inf.mlp(activation="erf"), inf.Sequential(inf.LayerNorm(), inf.ReLU()), inf.Residual(inf.Linear())],
)
def test_other_networks_are_no_chains(network):
    assert DenseChain.of(network) is None
