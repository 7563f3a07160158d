"""Dense chains in closed form: the same matrices as any engine gives, the same derivatives as finite differences."""

from __future__ import annotations

import pytest
import torch

from gdkl import infinite as inf
from gdkl.infinite import DenseChain, closed_form
from gdkl.numerics import DataError

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


FORMS = [*CHAINS, inf.Sequential(inf.Linear(2.0), inf.RBF(0.7))]


@pytest.mark.parametrize("network", FORMS)
def test_covariances_with_other_rows_have_values_and_derivatives_of_the_network(network):
    generator = torch.Generator().manual_seed(3)
    x, z = (torch.randn(n, 3, dtype=torch.float64, generator=generator) for n in (5, 7))
    z[0] = x[0]
    form, x = closed_form(network), x.requires_grad_()
    K, pullback = form.cross(x.detach(), z)
    torch.testing.assert_close(K, network.kernel(x.detach(), z), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(form.diagonal(x), network.diagonal(x.detach()), rtol=1e-12, atol=1e-12)
    G = torch.randn(5, 7, dtype=torch.float64, generator=generator)
    (wanted,) = torch.autograd.grad(network.kernel(x, z), x, G)
    torch.testing.assert_close(pullback(G), wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("network", [*FORMS, inf.mlp(activation="erf"), inf.Linear([0.5, 1.0, 2.0])])
def test_pairs_are_the_diagonal_of_the_matrix(network):
    x, z = _rows(d=3), _rows(d=3, seed=4)
    z[5] = x[5]
    x.requires_grad_()
    pairs, diagonal = network.pairs(x, z), network.kernel(x, z).diagonal()
    torch.testing.assert_close(pairs, diagonal, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network.pairs(x.detach().numpy(), z.numpy()), pairs.detach().numpy())
    apart = torch.arange(12) > 5  # derivatives of parallel rows have a corner
    (found,), (wanted,) = (torch.autograd.grad(value[apart].sum(), x) for value in (pairs, diagonal))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)


def test_pairs_need_as_many_inputs():
    with pytest.raises(DataError, match="as many inputs; got 3 and 2"):
        inf.mlp().pairs(torch.ones(3, 2), torch.ones(2, 2))
