"""Recorded steps and inputs made ahead; on a CPU there is nothing to record, and nothing is made ahead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gdkl.objectives import ObjectiveValue
from gdkl.training import Callback, GraphedStep, History, Prefetcher, Schedule, StudentOptions, train
from training.test_training import by_autograd

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_on_a_cpu_inputs_are_made_when_they_are_asked_for():
    made: list[int] = []

    def make(step: int) -> tuple[torch.Tensor, ...]:
        made.append(step)
        return (torch.tensor(step),)

    ahead = Prefetcher(make, torch.device("cpu"))
    assert [int(*ahead(step)) for step in (3, 4, 5)] == [3, 4, 5]
    assert made == [3, 4, 5]


@needs_cuda
def test_inputs_made_ahead_are_those_of_their_step():
    device = torch.device("cuda")
    source = torch.randn(50, 400, 400, device=device)
    ahead = Prefetcher(lambda step: (source[step] @ source[step],), device)
    # A step that is left out is made when it is asked for.
    for step in (*range(20), 30, 31):
        (found,) = ahead(step)
        torch.testing.assert_close(found, source[step] @ source[step])


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()


def _loss(net: nn.Module):
    def loss(rows: torch.Tensor, targets: torch.Tensor) -> ObjectiveValue:
        squares = (net(rows).squeeze(-1) - targets).square()
        return ObjectiveValue(squares.mean()[None], {"squares": squares.mean()[None]})

    return loss


@needs_cuda
def test_a_recorded_step_is_the_step():
    plain, recorded = _net(), _net()
    step = GraphedStep(_loss(recorded), list(recorded.parameters()))
    optimisers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (plain, recorded)]
    kept: list[tuple[ObjectiveValue, float]] = []
    for index in range(12):
        # One batch is shorter than the recorded one.
        rows = torch.randn(7 if index == 8 else 16, 5, device="cuda")
        targets = rows.sum(dim=1)
        optimisers[0].zero_grad()
        expected = _loss(plain)(rows, targets)
        expected.value.sum().backward()
        found = step(rows, targets)
        assert not found.value.requires_grad
        for one, other in zip(plain.parameters(), recorded.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        for optimiser in optimisers:
            optimiser.step()
        kept.append((found, float(expected.value)))
    # Objectives are looked at many steps later.
    for found, expected in kept:
        assert float(found.value) == pytest.approx(expected, rel=1e-5)
        assert float(found.terms["squares"]) == pytest.approx(expected, rel=1e-5)


class _AtOnce(Callback):
    every = 7

    def __init__(self, history: History) -> None:
        self.history = history
        self.seen: list[tuple[int, int]] = []

    def on_step(self, report):
        self.seen.append((report.step, len(self.history.rows)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_who_can_wait_is_told_of_every_step_in_order_and_before_training_ends(device):
    torch.manual_seed(0)
    net = nn.Linear(3, 1).to(device)
    rows = torch.randn(20, 3, device=device)

    def loss(step: int) -> ObjectiveValue:
        value = net(rows).square().mean()[None] + step
        return ObjectiveValue(value, {"number": torch.full((1,), float(step), device=device)})

    history = History()
    at_once = _AtOnce(history)
    options = StudentOptions(Schedule(200), callbacks=[history, at_once])
    train(net, [{"params": list(net.parameters())}], by_autograd(net, loss), options)
    assert [row["number"] for row in history.rows] == list(range(200))
    # Whoever cannot wait finds the others told as well.
    assert at_once.seen == [(step, step) for step in [*range(7, 201, 7), 200]]
