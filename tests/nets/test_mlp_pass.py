"""The written-out training pass of an MLP against torch's own layers, for one network and for several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gdkl.nets import MLP, Members, mlp_pass
from gdkl.numerics import shared_by_threads


def _networks(count, widths=(6, 5, 2)):
    torch.manual_seed(0)
    return [MLP(3, widths).double() for _ in range(count)]


def _by_torch(networks, rows, weights):
    """Features and gradients of each network's parameters by torch's own layers."""
    features = torch.stack([net(x) for net, x in zip(networks, rows, strict=True)])
    gradients = [
        torch.autograd.grad((weights[index] * features[index]).sum(), list(net.parameters()), retain_graph=True)
        for index, net in enumerate(networks)
    ]
    return features, [torch.stack(values) for values in zip(*gradients, strict=True)]


@pytest.mark.parametrize("n", [5, 80])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("widths", [(2,), (6, 5, 2)])
def test_a_training_pass_is_that_of_torchs_layers(n, count, widths):
    networks = _networks(count, widths)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(count, n, 3, dtype=torch.float64, generator=generator)
    weights = torch.randn(count, n, 2, dtype=torch.float64, generator=generator)
    features, gradients = _by_torch(networks, rows, weights)
    members = Members(networks)
    ours = members(rows)
    assert ours.grad_fn.name() == "_PassBackward"
    torch.testing.assert_close(ours, features, rtol=1e-12, atol=1e-12)
    (weights * ours).sum().backward()
    for parameter, expected in zip(members.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_gradcheck_of_the_pass(count):
    networks = _networks(count, (4, 2))
    parameters = [value.detach().clone().requires_grad_() for value in Members(networks).parameters()]
    rows = torch.randn(count, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.autograd.gradcheck(lambda *values: mlp_pass.mlp_pass(rows, values), parameters)


def test_threads_change_nothing():
    members = Members(_networks(4))
    rows = torch.randn(4, 100, 3, dtype=torch.float64)
    results = []
    for threads in (1, 2):
        members.zero_grad()
        with shared_by_threads(threads):
            members(rows).square().sum().backward()
        results.append([parameter.grad.clone() for parameter in members.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


class _Own(MLP):
    def forward(self, x):
        return super().forward(x).tanh()


def _hooked():
    net = MLP(3, (4, 2))
    net.layers[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


def _normalised():
    net = MLP(3, (4, 2))
    nn.utils.parametrizations.weight_norm(net.layers[0])
    return net


def _other_activation():
    net = MLP(3, (4, 2))
    net.layers[1] = nn.Tanh()
    return net


@pytest.mark.parametrize("build", [lambda: _Own(3, (4, 2)), _hooked, _normalised, _other_activation])
def test_a_network_that_is_not_plain_goes_its_own_way(build):
    net = build()
    assert not mlp_pass.is_plain(net)
    rows = torch.randn(1, 80, 3)
    torch.testing.assert_close(Members([net])(rows)[0], net(rows[0]))


def test_gradients_to_rows_and_second_derivatives_go_through_torch():
    rows = torch.randn(1, 5, 3, dtype=torch.float64, requires_grad=True)
    members = Members(_networks(1))
    (first,) = torch.autograd.grad(members(rows).square().sum(), rows, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), rows)
    assert bool(torch.isfinite(second).all())
    features = members.eval()(rows.detach())
    assert features.grad_fn.name() != "_PassBackward"


def test_a_pass_in_another_precision_than_its_parameters_is_refused_as_by_torch():
    with pytest.raises(RuntimeError, match="dtype"):
        Members(_networks(1))(torch.zeros(1, 5, 3))
