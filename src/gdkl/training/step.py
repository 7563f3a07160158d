"""A training step: from the student and what the step sees to the objective, with every gradient in place.

A method states its objective once, as a function ``loss(student, *inputs)`` that returns an `ObjectiveValue` with one
value per member. What takes it to gradients is one of three: `AutogradStep`, the plain reading and the reference;
`ThreadedStep`, the same with members shared by threads; `gdkl.training.GraphedStep`, the same as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gdkl.numerics import SHARED_SMALLEST, thread_map
from gdkl.objectives import ObjectiveValue
from gdkl.training.data import TrainingData
from gdkl.training.student import DeepKernel

#: Up to this many rows members have a thread each however few they are: torch's own threads would gain less.
_FEW_ROWS = 1000


class Step(Protocol):
    """From the inputs of a step to its objective, without a graph; gradients of its sum are in ``.grad``."""

    def __call__(self, *inputs: Any) -> ObjectiveValue:
        """Take the step's objective and gradients."""
        ...


class AutogradStep:
    """A step by autograd, whatever the student and the objective are.

    Args:
        student: What is trained.
        loss: From the student and the inputs of a step to the objective, one value per member.

    Example:
        >>> net = nn.Linear(1, 1)
        >>> step = AutogradStep(net, lambda student, rows: ObjectiveValue(student(rows).square().sum()[None], {}))
        >>> step(torch.ones(2, 1)).value.requires_grad, net.weight.grad is None
        (False, False)
    """

    def __init__(self, student: nn.Module, loss: Callable[..., ObjectiveValue]):
        self._student = student
        self._loss = loss

    def __call__(self, *inputs: Any) -> ObjectiveValue:
        """Take the step's objective and gradients."""
        self._student.zero_grad(set_to_none=True)
        objective = self._loss(self._student, *inputs)
        objective.value.sum().backward()
        return detached(objective)


class ThreadedStep:
    """The same step with the members shared by the threads of `gdkl.numerics.thread_pool`, a group for each.

    Members do not depend on each other, so their gradients are those of `AutogradStep` up to rounding.

    Args:
        student: What is trained, of several members.
        loss: As for `AutogradStep`; the inputs are tensors, tuples of them or `TrainingData`, members first.
        threads: Number of groups.
    """

    def __init__(self, student: DeepKernel, loss: Callable[..., ObjectiveValue], threads: int):
        members, groups = student.network.count, min(threads, student.network.count)
        edges = [members * index // groups for index in range(groups + 1)]
        self._parts = [slice(start, end) for start, end in pairwise(edges)]
        students = [student.select(part).train() for part in self._parts]
        self._steps = [AutogradStep(some, loss) for some in students]
        self._parameters = list(zip(student.parameters(), *(some.parameters() for some in students), strict=True))

    def __call__(self, *inputs: Any) -> ObjectiveValue:
        """Take the step's objective and gradients."""

        def one(index: int) -> ObjectiveValue:
            return self._steps[index](*(_select(value, self._parts[index]) for value in inputs))

        found = thread_map(len(self._parts), one)
        for whole, *own in self._parameters:
            gradients = [value.grad.reshape(-1, *whole.shape[1:]) for value in own if value.grad is not None]
            whole.grad = torch.cat(gradients) if gradients else None
        terms = {name: torch.cat([part.terms[name] for part in found]) for name in found[0].terms}
        return ObjectiveValue(torch.cat([part.value for part in found]), terms)


def _select(value: Any, part: slice) -> Any:
    """Some members' part of an input."""
    if isinstance(value, Tensor):
        return value[part]
    if isinstance(value, TrainingData):
        return value.select(part)
    return type(value)(*(_select(one, part) for one in value))


def member_threads(data: TrainingData) -> int:
    """Threads that share the members of a step: all that torch may use, or one to leave them to torch."""
    threads, few = torch.get_num_threads(), data.n < _FEW_ROWS
    shared = data.rows.device.type == "cpu" and data.n >= SHARED_SMALLEST
    return threads if shared and data.members > 1 and (few or data.members >= threads) else 1


def detached(objective: ObjectiveValue) -> ObjectiveValue:
    """An objective without its graph."""
    return ObjectiveValue(objective.value.detach(), {name: term.detach() for name, term in objective.terms.items()})
