"""Adam without its ceremony: the numbers and the state of torch's own."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from gdkl.training import LeanAdam


class _Problem(nn.Module):
    def __init__(self, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Parameter(torch.randn(5, 4, generator=generator).to(dtype))
        self.second = nn.Parameter(torch.randn(4, generator=generator, dtype=torch.float64))

    def groups(self):
        return [{"params": [self.first], "weight_decay": 1e-2}, {"params": [self.second]}]

    def value(self):
        return ((self.first @ self.second.to(self.first.dtype)).square().sum() + self.second.cos().sum()).double()


def _step(problem, optimiser, rate):
    for group, factor in zip(optimiser.param_groups, (1.0, 3.0), strict=True):
        group["lr"] = rate * factor
    optimiser.zero_grad()
    problem.value().backward()
    optimiser.advance() if isinstance(optimiser, LeanAdam) else optimiser.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch_bit_for_bit(dtype):
    ours, theirs = _Problem(dtype), _Problem(dtype)
    lean = LeanAdam(ours.groups(), 1e-2, memory=0.99)
    plain = torch.optim.Adam(theirs.groups(), lr=1e-2, betas=(0.9, 0.99), fused=True)
    for step in range(20):
        _step(ours, lean, 1e-2 / (step + 1))
        _step(theirs, plain, 1e-2 / (step + 1))
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_saved_state_is_gone_on_from():
    problem = _Problem()
    optimiser = LeanAdam(problem.groups(), 1e-2)
    for _ in range(3):
        _step(problem, optimiser, 1e-2)
    other = deepcopy(problem)
    resumed = LeanAdam(other.groups(), 1e-2)
    _step(other, resumed, 1e-2)
    other.load_state_dict(problem.state_dict())
    resumed.load_state_dict(deepcopy(optimiser.state_dict()))
    for _ in range(3):
        _step(problem, optimiser, 1e-2)
        _step(other, resumed, 1e-2)
    assert all(torch.equal(*pair) for pair in zip(problem.parameters(), other.parameters(), strict=True))
    assert int(resumed.state_dict()["state"][0]["step"]) == 6


def test_a_parameter_without_a_gradient_stays_where_it_is():
    used, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimiser = LeanAdam([used, unused], 1e-1)
    for _ in range(3):
        optimiser.clear_gradients()
        used.square().sum().backward()
        optimiser.advance()
    assert torch.equal(unused.detach(), torch.ones(2))
    assert float(used.detach().max()) < 0.8
    optimiser.clear_gradients()
    (used * unused).sum().backward()
    optimiser.advance()
    assert float(unused.detach().max()) < 1
