"""Feature networks, and many of them as one."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from gdkl.nets import MLP, Members
from gdkl.numerics import OptionError


def test_mlp_has_relu_between_layers_and_none_after_the_last():
    net = MLP(3, (5, 4))
    x = torch.randn(7, 3)
    first, _, last = net.layers
    torch.testing.assert_close(net(x), last(torch.relu(first(x))))
    assert float(net(x).detach().min()) < 0


def test_mlp_refuses_no_layers():
    with pytest.raises(OptionError, match="positive widths"):
        MLP(3, ())
    with pytest.raises(OptionError, match="positive widths"):
        MLP(3, (4, 0))


class WithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        return self.inner(x) + self.shift


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("build", [lambda: MLP(3, (8, 2)), WithBuffer])
def test_members_are_a_loop_over_the_networks(count, build):
    networks = [build() for _ in range(count)]
    rows = torch.randn(count, 6, 3)
    expected = torch.stack([net(x) for net, x in zip(networks, rows, strict=True)])
    members = Members(networks)
    torch.testing.assert_close(members(rows), expected)
    torch.testing.assert_close(members.double()(rows.double()), expected.double(), rtol=1e-4, atol=1e-5)


def test_members_do_not_share_gradients():
    members = Members([MLP(3, (4, 2)), MLP(3, (4, 2))])
    members(torch.randn(2, 5, 3))[0].sum().backward()
    for parameter in members.parameters():
        assert float(parameter.grad[0].abs().sum()) > 0 or parameter.grad[0].numel() == 0
        assert float(parameter.grad[1].abs().sum()) == 0


def test_members_state_and_pickle_round_trip():
    rows = torch.randn(2, 5, 3)
    members = Members([WithBuffer(), WithBuffer()])
    other = Members([WithBuffer(), WithBuffer()])
    assert not torch.equal(other(rows), members(rows))
    other.load_state_dict(members.state_dict())
    assert torch.equal(other(rows), members(rows))
    assert torch.equal(pickle.loads(pickle.dumps(members))(rows), members(rows))
