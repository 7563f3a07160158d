"""A training step: from the student and what the step sees to the objective, with every gradient in place.

A method states its objective once, as a function ``loss(student, *inputs)`` that returns an `ObjectiveValue` with one
value per member. What takes it to gradients is one of three: `AutogradStep`, the plain reading and the reference;
`MemberwiseStep`, the same member by member on a CPU; `gdkl.training.GraphedStep`, the same as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gdkl.numerics import thread_map
from gdkl.objectives import ObjectiveValue
from gdkl.training.data import TrainingData
from gdkl.training.student import DeepKernel

#: From this many rows on, members are computed one by one on a CPU: the matrices of one stay in the cache from one
#: operation to the next, and members can be shared by threads. Below it calls cost more than arithmetic.
_MEMBERWISE_ROWS = 128

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


class MemberwiseStep:
    """The same step taken by each member on its own, by the threads of `gdkl.numerics.thread_pool` if there are any.

    Members do not depend on each other, so their gradients are those of `AutogradStep` up to rounding. Ten folds of
    455 rows train a third faster than as one batch.

    Args:
        student: What is trained, of several members.
        loss: As for `AutogradStep`; the inputs are tensors, tuples of them or `TrainingData`, members first.
    """

    def __init__(self, student: DeepKernel, loss: Callable[..., ObjectiveValue]):
        self._members = [student.member(index).train() for index in range(student.network.count)]
        self._steps = [AutogradStep(member, loss) for member in self._members]
        own = [list(member.parameters()) for member in self._members]
        self._parameters = list(zip(student.parameters(), *own, strict=True))

    def __call__(self, *inputs: Any) -> ObjectiveValue:
        """Take the step's objective and gradients."""

        def one(index: int) -> ObjectiveValue:
            return self._steps[index](*(_member_of(value, index) for value in inputs))

        parts = thread_map(len(self._members), one)
        for whole, *own in self._parameters:
            gradients = [parameter.grad for parameter in own if parameter.grad is not None]
            whole.grad = torch.stack(gradients).view_as(whole) if gradients else None
        terms = {name: torch.cat([part.terms[name] for part in parts]) for name in parts[0].terms}
        return ObjectiveValue(torch.cat([part.value for part in parts]), terms)


def _member_of(value: Any, index: int) -> Any:
    """One member's part of an input, as a batch of one."""
    if isinstance(value, Tensor):
        return value[index : index + 1]
    if isinstance(value, TrainingData):
        return value.member(index)
    return type(value)(*(_member_of(part, index) for part in value))


def is_memberwise(data: TrainingData) -> bool:
    """Whether a step on these data is taken member by member."""
    return data.members > 1 and data.rows.device.type == "cpu" and data.n >= _MEMBERWISE_ROWS


def member_threads(data: TrainingData) -> int:
    """Threads that share the members of a memberwise step: all that torch may use, or one to leave them to torch."""
    threads = torch.get_num_threads()
    return threads if data.members >= threads or data.n < _FEW_ROWS else 1


def detached(objective: ObjectiveValue) -> ObjectiveValue:
    """An objective without its graph."""
    return ObjectiveValue(objective.value.detach(), {name: term.detach() for name, term in objective.terms.items()})
