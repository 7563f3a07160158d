"""Wide residual networks: shape, size, what a block computes, and many of them as one."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from gdkl.nets import ImageFeatures, Members, WideBlock, WideResNet
from gdkl.nets import images as images_module
from gdkl.numerics import OptionError


def test_paper_network_has_28_convolutions_and_320_features():
    net = WideResNet()
    convolutions = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 28
    assert net.feature_size == 320
    assert sum(layer.stride == (2, 2) and layer.kernel_size == (3, 3) for layer in convolutions) == 2
    # By hand: the stem, the first block of each group (3 × 3, 3 × 3, 1 × 1), and three blocks of two convolutions.
    groups = ((16, 80), (80, 160), (160, 320))
    weights = 3 * 16 * 9 + sum(9 * a * b + a * b + 7 * 9 * b * b for a, b in groups)
    norms = 2 * (16 + 80 * 7 + 80 + 160 * 7 + 160 + 320 * 7 + 320)
    assert sum(parameter.numel() for parameter in net.parameters()) == weights + norms


@pytest.mark.parametrize(("size", "channels"), [(8, 3), (9, 1), (28, 1), (32, 3)])
def test_images_of_any_size_become_pooled_features(size, channels):
    net = WideResNet(10, 2, in_channels=channels)
    features = net(torch.randn(3, channels, size, size + 3)).detach()
    assert features.shape == (3, 128)
    assert float(features.min()) >= 0
    assert float(features.std()) > 0


@pytest.mark.parametrize(("in_channels", "stride"), [(4, 1), (6, 1), (6, 2)])
def test_block_is_its_definition(in_channels, stride):
    block = WideBlock(in_channels, 6, stride).eval()
    for norm in (block.norm1, block.norm2):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, in_channels, 8, 8)

    def active(norm, value):
        shape = (1, -1, 1, 1)
        scaled = (value - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()
        return scaled.clamp_min(0)

    first = active(block.norm1, x)
    inner = F.conv2d(first, block.conv1.weight, stride=stride, padding=1)
    outer = F.conv2d(active(block.norm2, inner), block.conv2.weight, padding=1)
    same = in_channels == 6 and stride == 1
    beside = x if same else F.conv2d(x, block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), outer + beside, rtol=1e-4, atol=1e-5)


def test_first_weights_are_torchs_own():
    # Batch norm makes the size of the weights the inverse of a learning rate: the paper's goes with these.
    torch.manual_seed(5)
    net = WideResNet(10, 2)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            fan_in = layer.weight[0].numel()
            deviation = float(layer.weight.detach().std())
            assert deviation == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)


def test_what_is_learned_with_dropout_holds_in_evaluation():
    # Full-batch descent on a few noisy images, as in the few-shot runs: both ways of seeing the batch must agree.
    torch.manual_seed(0)
    labels = torch.arange(40) % 4
    angle = labels * torch.pi / 4
    grid = torch.linspace(-2, 2, 16)
    waves = torch.cos(3 * (angle.cos().view(-1, 1, 1) * grid + angle.sin().view(-1, 1, 1) * grid.view(-1, 1)))
    images = waves.unsqueeze(1) + 0.7 * torch.randn(40, 3, 16, 16)
    model = nn.Sequential(WideResNet(28, 1), nn.Linear(64, 4))
    descent = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(30):
        loss = F.cross_entropy(model(images), labels)
        descent.zero_grad()
        loss.backward()
        descent.step()
    # With He's weights and a shortcut from the activated input the loss falls too, but a third is right here.
    right = (model.eval()(images).argmax(dim=-1) == labels).float().mean()
    assert float(loss.detach()) < 0.8
    assert float(right) > 0.9


def test_features_are_averaged_in_the_weights_precision():
    torch.manual_seed(0)
    net = WideResNet(10, 1).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = net(torch.randn(4, 3, 16, 16))
    assert features.dtype == torch.float32
    assert not torch.equal(features, features.bfloat16().float())


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    net = WideResNet(10, 1, dropout=0.5)
    x = torch.randn(4, 3, 8, 8)
    assert not torch.allclose(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_features_do_not_depend_on_memory_layout():
    net = WideResNet(10, 2).eval()
    x = torch.randn(4, 3, 16, 16)
    expected = net(x)
    other = net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(other(x.contiguous(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)


def test_network_can_be_traced():
    net = WideResNet(10, 1).eval()
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(fx.symbolic_trace(net)(x), net(x))


def test_seed_means_the_same_weights_whatever_the_default_precision():
    torch.manual_seed(3)
    expected = WideResNet(10, 1).state_dict()
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(3)
        found = WideResNet(10, 1).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in expected.items())


def test_members_keep_batch_norm_statistics_of_their_own():
    torch.manual_seed(0)
    networks = [WideResNet(10, 1, dropout=0.0) for _ in range(3)]
    alone = deepcopy(networks)
    members = Members(networks)
    rows = torch.randn(3, 6, 3, 8, 8) + torch.arange(3.0).view(3, 1, 1, 1, 1)
    for training in (True, False, True, False):
        members.train(training)
        expected = torch.stack([net.train(training)(x) for net, x in zip(alone, rows, strict=True)])
        torch.testing.assert_close(members(rows), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 27}, r"6·b \+ 4"),
        ({"depth": 4}, r"6·b \+ 4"),
        ({"widen_factor": 0}, "at least 1"),
        ({"in_channels": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        WideResNet(**options)


@pytest.mark.parametrize("fast", [False, True])
def test_a_cpu_trains_in_bfloat16_where_it_can_and_always_predicts_in_float32(fast, monkeypatch):
    monkeypatch.setattr(images_module, "_fast_on_cpu", lambda: fast)
    torch.manual_seed(0)
    net = WideResNet(10, 1, dropout=0.0)
    features = ImageFeatures(net, (3, 8, 8), torch.float64)
    rows = torch.randn(6, 192)
    exact = net(rows.unflatten(1, (3, 8, 8))).double()
    trained = features(rows)
    assert (trained.float().double() - exact).abs().max() < 0.05
    assert torch.equal(trained, exact) is not fast
    trained.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
    features.eval()
    assert torch.equal(features(rows), net(rows.unflatten(1, (3, 8, 8))).double())


def test_double_precision_stays_what_it_is(monkeypatch):
    monkeypatch.setattr(images_module, "_fast_on_cpu", lambda: True)
    net = nn.Conv2d(3, 2, 3).double()
    rows = torch.randn(2, 192, dtype=torch.float64)
    found = ImageFeatures(nn.Sequential(net, nn.Flatten()), (3, 8, 8), torch.float64)(rows)
    assert torch.equal(found, net(rows.unflatten(1, (3, 8, 8))).flatten(1))
