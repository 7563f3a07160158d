"""Spectral normalisation: norms against singular values of dense matrices, gradients, batch norm, members."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from gdkl.nets import (
    MLP,
    ImageFeatures,
    Members,
    ResidualMLP,
    SpectralLayer,
    SpectralNetwork,
    WideResNet,
    converge_norms,
)
from gdkl.nets.spectral import leading_vector
from gdkl.numerics import DataError, OptionError

CONVOLUTIONS = {
    "3 x 3": {"kernel_size": 3, "padding": 1},
    "stride": {"kernel_size": 3, "padding": 1, "stride": 2},
    "short cut": {"kernel_size": 1, "stride": 2},
    "dilated": {"kernel_size": 3, "dilation": 2, "padding": 1},
    "groups": {"kernel_size": 3, "groups": 2, "padding": (0, 2), "stride": (1, 3)},
}


def dense(layer, shape):
    """The matrix of a layer's map, column by column: independent of its adjoint."""
    unit = torch.eye(shape.numel(), dtype=layer.weight.dtype).view(-1, *shape)
    with torch.no_grad():
        if isinstance(layer, nn.Linear):
            return unit @ layer.weight.T
        plain = nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            bias=False,
        ).to(layer.weight)
        plain.weight.copy_(layer.weight)
        return plain(unit).flatten(1)


def operator_norm(layer, weight=None):
    own = deepcopy(layer)
    if weight is not None:
        own.weight = nn.Parameter(weight.detach())
    return float(torch.linalg.matrix_norm(dense(own, layer.v.shape), 2))


def layers(network):
    return [layer for layer in network.modules() if isinstance(layer, SpectralLayer)]


def limited(network, columns, coefficient=0.5, iterations=1, seed=0):
    torch.manual_seed(seed)
    return SpectralNetwork(network, columns, coefficient, iterations)


@pytest.mark.parametrize("size", [(6, 6), (7, 5)])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_limited_as_a_map_of_images_of_their_real_size(name, size):
    torch.manual_seed(1)
    conv = nn.Conv2d(4, 6, **CONVOLUTIONS[name]).double()
    images = nn.Sequential(nn.Unflatten(1, (4, *size)), conv, nn.Flatten())
    net = limited(images, 4 * size[0] * size[1]).converge().eval()
    [layer] = layers(net)
    u, v = torch.randn_like(layer.u), torch.randn_like(layer.v)
    torch.testing.assert_close((layer.apply_map(v) * u).sum(), (layer.apply_adjoint(u) * v).sum())
    norm = operator_norm(layer)
    assert norm > 0.5
    assert float(layer.norm().detach()) == pytest.approx(norm, rel=1e-4)
    assert operator_norm(layer, layer.limited_weight()) == pytest.approx(0.5, rel=1e-4)
    x = torch.randn(3, v.numel(), dtype=torch.float64)
    bias = conv.bias.view(-1, 1, 1).expand(layer.u.shape).flatten()
    torch.testing.assert_close(net(x) - bias, x @ dense(layer, v.shape) * 0.5 / norm, rtol=1e-3, atol=1e-4)


def test_only_what_is_above_the_coefficient_is_scaled_down():
    plain = MLP(5, (7, 3))
    x = torch.randn(4, 5)
    expected = plain(x)
    torch.testing.assert_close(limited(deepcopy(plain), 5, coefficient=100.0)(x), expected)
    small = limited(deepcopy(plain), 5, coefficient=0.1).converge().eval()
    assert not torch.allclose(small(x), expected)
    for layer, before in zip(layers(small), (plain.layers[0], plain.layers[2]), strict=True):
        assert torch.equal(layer.weight, before.weight)
        assert operator_norm(layer, layer.limited_weight()) == pytest.approx(0.1, rel=1e-4)


def test_gradients_are_those_of_the_weights_over_their_largest_singular_value():
    torch.manual_seed(0)
    net = limited(nn.Linear(6, 4).double(), 6, coefficient=0.3, iterations=1).converge()
    x, target = torch.randn(9, 6, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    W = net.network.weight.detach().clone().requires_grad_()
    expected = (x @ (0.3 * W / torch.linalg.matrix_norm(W, 2)).T + net.network.bias.detach() - target).square().sum()
    found = (net.train()(x) - target).square().sum()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    [gradient] = torch.autograd.grad(found, [net.network.weight])
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, [W])[0], rtol=1e-3, atol=1e-4)


def test_training_passes_follow_the_norm_and_evaluation_leaves_the_vectors():
    net = limited(nn.Linear(20, 20), 20, iterations=3)
    layer, x = net.network, torch.randn(2, 20)
    with torch.no_grad():
        layer.weight.copy_(torch.diag(torch.linspace(1, 3, 20)) + 0.1 * torch.randn(20, 20))
    norms = [float(layer.norm().detach()) for _ in range(60) if net.train()(x) is not None]
    assert norms[-1] == pytest.approx(operator_norm(layer), rel=1e-3)
    # Each iteration comes closer, and never beyond.
    assert max(norms) <= operator_norm(layer) * (1 + 1e-6)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.eval()(x)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert {"network.u", "network.v"} <= set(before)
    again = limited(nn.Linear(20, 20), 20, seed=9)
    again.load_state_dict(before)
    assert torch.equal(again.eval()(x), net(x))


def test_weights_that_start_at_zero_are_limited_once_they_are_learned():
    linear = nn.Linear(4, 4)
    nn.init.zeros_(linear.weight)
    net = limited(linear, 4, coefficient=0.5)
    assert bool(torch.isfinite(net.train()(torch.randn(3, 4))).all())
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4) * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    net.converge()
    assert float(net.network.norm().detach()) == pytest.approx(4.0, rel=1e-5)


@pytest.mark.parametrize("size", [1, 5, 60])
def test_the_leading_vector_of_close_eigenvalues(size):
    generator = torch.Generator().manual_seed(size)
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    values = 1 - 1e-3 * torch.arange(size, dtype=torch.float64)
    A = Q @ torch.diag(values) @ Q.T
    v = leading_vector(lambda x: A @ x, torch.randn(size, generator=generator, dtype=torch.float64))
    assert float(v.norm()) == pytest.approx(1.0)
    assert float(v @ A @ v) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_multiplies_by_the_coefficient_at_most(affine):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3, affine=affine)
    norm.running_var.copy_(torch.tensor([0.01, 1.0, 4.0]))
    norm.running_mean.normal_()
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    plain = deepcopy(norm).eval()
    net = limited(nn.Sequential(nn.Unflatten(1, (3, 2, 2)), norm), 12, coefficient=2.0).eval()
    zero, x = torch.zeros(1, 12), torch.randn(5, 12)
    factor = (plain.weight if affine else torch.ones(3)) / (plain.running_var + plain.eps).sqrt()
    assert float(factor.abs().max()) > 2.0
    expected = (plain(x.view(5, 3, 2, 2)) - plain(zero.view(1, 3, 2, 2))) * 2.0 / factor.abs().max()
    torch.testing.assert_close(net(x) - net(zero), expected)
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    net.train()(x)
    alone = deepcopy(plain).train()
    alone(x.view(5, 3, 2, 2))
    torch.testing.assert_close(norm.running_mean, alone.running_mean)
    torch.testing.assert_close(norm.running_var, alone.running_var)
    assert not torch.equal(norm.running_mean, mean)
    assert not torch.equal(norm.running_var, variance)


def test_a_wide_resnet_is_limited_throughout():
    images = ImageFeatures(WideResNet(10, 1, dropout=0.0), (3, 9, 8), torch.float64)
    net = limited(images, 216, coefficient=0.7).converge().eval()
    found = layers(net)
    assert len(found) == 9
    shapes = {tuple(layer.v.shape) for layer in found}
    # The real sizes: 9 × 8 to start with, halved twice.
    assert shapes == {(3, 9, 8), (16, 9, 8), (32, 5, 4), (64, 3, 2)}
    for layer in found[:4]:
        assert operator_norm(layer, layer.limited_weight()) <= 0.7 * 1.0001
    assert type(images.network) is WideResNet
    assert len([one for one in net.modules() if isinstance(one, nn.BatchNorm2d)]) == 7


@pytest.mark.parametrize(
    "build", [lambda: ResidualMLP(6, (8, 8, 3)), lambda: ImageFeatures(_small(), (1, 2, 3), torch.float32, False)]
)
def test_members_are_a_loop_over_the_networks(build):
    torch.manual_seed(0)
    networks = [SpectralNetwork(build(), 6, 0.3, 2) for _ in range(3)]
    alone, members = deepcopy(networks), Members(networks)
    rows = torch.randn(3, 5, 6)
    for training in (True, True, False):
        members.train(training)
        expected = torch.stack([net.train(training)(x) for net, x in zip(alone, rows, strict=True)])
        torch.testing.assert_close(members(rows), expected, rtol=1e-4, atol=1e-5)
    converge_norms(members)
    for index, net in enumerate(alone):
        net.converge()
        same = members.select(slice(index, index + 1)).single
        for one, other in zip(layers(same), layers(net), strict=True):
            torch.testing.assert_close(one.norm(), other.norm(), rtol=1e-5, atol=0)
            assert float(one.norm().detach()) == pytest.approx(operator_norm(other), rel=1e-4)


def _small():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))


def test_layers_of_equal_width_are_residual_and_keep_distances():
    torch.manual_seed(0)
    net = ResidualMLP(3, (5, 5, 4))
    x = torch.randn(7, 3)
    first, second, last = net.layers
    inner = first(x)
    torch.testing.assert_close(net(x), last(inner + torch.relu(second(inner))))
    block = limited(ResidualMLP(6, (6, 6)), 6, coefficient=0.5).converge().eval()
    a, b = torch.randn(2, 500, 6)
    ratio = (block(a) - block(b)).norm(dim=1) / (a - b).norm(dim=1)
    assert float(ratio.min()) >= 0.25
    assert float(ratio.max()) <= 2.25
    with pytest.raises(OptionError, match="positive widths"):
        ResidualMLP(3, ())


def test_networks_that_cannot_be_limited_are_refused_in_a_line():
    same = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten())
    with pytest.raises(OptionError, match="padding='same'"):
        SpectralNetwork(same, 16)
    with pytest.raises(DataError, match="feature_net failed on 2 rows of 5 columns"):
        SpectralNetwork(nn.Linear(3, 2), 5)
    # A batch norm without statistics has no factor to limit, and stays.
    net = SpectralNetwork(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)), 3)
    assert type(net.network[1]) is nn.BatchNorm1d
