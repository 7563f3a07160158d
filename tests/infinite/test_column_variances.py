"""A first layer with one weight variance per column: scaled inputs in every engine, and finite networks."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

import gdkl.infinite as inf
from gdkl.numerics import DataError, OptionError

VARIANCES = [0.0, 0.5, 4.0]


def _networks(activation="relu"):
    rest = inf.mlp(hidden_layers=2, activation=activation).layers[1:]
    return (inf.Sequential(inf.Linear(w, 0.3), *rest) for w in (VARIANCES, 1.0))


def _rows(n=7, dtype=torch.float64, seed=0):
    return torch.randn(n, 3, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", ["relu", "erf"])
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_are_those_of_scaled_inputs(activation, kind, dtype):
    net, plain = _networks(activation)
    x, z, root = _rows(dtype=dtype), _rows(5, dtype, 1), torch.tensor(VARIANCES).sqrt().to(dtype)
    torch.testing.assert_close(net.kernel(x, kind=kind), plain.kernel(x * root, kind=kind))
    torch.testing.assert_close(net.kernel(x, z, kind), plain.kernel(x * root, z * root, kind))
    torch.testing.assert_close(net.diagonal(x, kind), plain.diagonal(x * root, kind))
    assert isinstance(net.kernel(x.numpy()), np.ndarray)


def test_one_variance_for_all_columns_is_the_plain_layer():
    x = _rows()
    torch.testing.assert_close(inf.Linear([1.7] * 3, 0.2).kernel(x), inf.Linear(1.7, 0.2).kernel(x))


def test_gradients_flow_to_the_inputs():
    net, plain = _networks()
    x, root = _rows().requires_grad_(), torch.tensor(VARIANCES).double().sqrt()
    G = torch.arange(49.0).double().reshape(7, 7)
    found, wanted = (torch.autograd.grad((K * G).sum(), x)[0] for K in (net.kernel(x), plain.kernel(x * root)))
    torch.testing.assert_close(found, wanted)
    assert bool((found[:, 0] == 0).all())


def test_specs_bring_it_back():
    net, _ = _networks()
    again = inf.from_spec(net.to_spec())
    assert again.to_spec() == net.to_spec()
    assert net.to_spec()[0]["w_var"] == VARIANCES
    torch.testing.assert_close(again.kernel(_rows()), net.kernel(_rows()))
    assert "weight_var=[0.0, 0.5, 4.0]" in repr(net)


def test_finite_networks_have_its_covariance():
    torch.manual_seed(0)
    net, _ = _networks()
    x = _rows(4)
    draws = torch.stack([net.finite(64, outputs=64, example=x)(x).detach() for _ in range(60)], dim=0)
    found = torch.einsum("snc,smc->nm", draws, draws) / (60 * 64)
    torch.testing.assert_close(found, net.kernel(x), rtol=0.12, atol=0.05)


def test_the_gpytorch_kernel_has_it_too():
    net, plain = _networks()
    x, root = _rows(), torch.tensor(VARIANCES).double().sqrt()
    kernel = inf.InfiniteWidthKernel(net).double()
    with torch.no_grad(), gpytorch.settings.debug(False):
        torch.testing.assert_close(kernel(x).to_dense(), plain.kernel(x * root), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(kernel(x, diag=True), plain.diagonal(x * root), rtol=1e-6, atol=1e-6)


def test_a_cached_matrix_is_that_of_its_variances(tmp_path):
    net, plain = _networks()
    x, root = _rows(), torch.tensor(VARIANCES).double().sqrt()
    for each, wanted in ((plain, plain.kernel(x)), (net, plain.kernel(x * root))):
        for _ in range(2):
            torch.testing.assert_close(each.kernel(x, cache_dir=tmp_path), wanted)


def test_wrong_uses_are_refused():
    net, _ = _networks()
    with pytest.raises(DataError, match=r"each of 3 columns"):
        net.kernel(torch.zeros(2, 4))
    with pytest.raises(DataError, match=r"each of 3 columns"):
        net.kernel(torch.zeros(2, 3, 4, 4))
    with pytest.raises(DataError, match=r"each of 3 columns"):
        net.finite(8)(torch.zeros(2, 4))
    with pytest.raises(OptionError, match="first layer"):
        inf.Sequential(inf.Linear(), inf.ReLU(), inf.Linear(VARIANCES)).kernel(_rows())
    for wrong in ([1.0, -1.0], [[1.0]], "12", [float("nan")]):
        with pytest.raises(OptionError, match="weight_var"):
            inf.Linear(wrong)
