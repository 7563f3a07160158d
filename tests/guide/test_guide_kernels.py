"""Kernel functions of infinite networks: sets of rows at once, and gradients."""

from __future__ import annotations

import pytest
import torch

from gdkl import infinite as inf
from gdkl.guide import as_kernel_function

NETWORKS = [inf.mlp(), inf.Sequential(inf.Linear(1.0), inf.RBF(0.5)), inf.mlp(activation="erf")]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("sets", [(), (3,), (4, 20)])  # one by one, blocks of one matrix, pairs
def test_each_set_has_the_matrix_that_it_has_alone(network, sets):
    kernel = as_kernel_function(network)
    x = torch.randn(*sets, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flat = x.reshape(-1, 5, 2)
    alone = torch.stack([network.kernel(rows) for rows in flat]).reshape(*sets, 5, 5)
    wanted = torch.stack([network.kernel(rows).diagonal() for rows in flat]).reshape(*sets, 5)
    for rows in (x, x.clone().requires_grad_()):
        K = kernel.gram(rows)
        torch.testing.assert_close(K, alone, rtol=1e-11, atol=1e-12)
        assert torch.equal(K, K.mT)
        torch.testing.assert_close(kernel.diagonal(rows), wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_those_of_finite_differences(network):
    kernel = as_kernel_function(network)
    generator = torch.Generator().manual_seed(1)
    x, z = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((2, 3, 2), (4, 2)))
    for function in (lambda x: kernel.cross(x, z), kernel.gram, kernel.diagonal):
        assert torch.autograd.gradcheck(function, (x.requires_grad_(),))
