"""What every training loop does: begin and end, set rates, tell those who watch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gdkl.objectives import ObjectiveValue
from gdkl.training.callbacks import Callback, StepReport
from gdkl.training.interrupts import InterruptGuard
from gdkl.training.schedule import Schedule

#: Steps that those who can wait are told of together.
_TOLD_AT_ONCE = 50


@dataclass(frozen=True)
class TrainingOutcome:
    """How training ended.

    Attributes:
        steps: Steps done.
        interrupted: Whether the user ended it early.
        stopped: Whether a callback did.
        failed: Whether a numerical failure did.
        trial: Whether it was a first fit, to some of the rows, that the user interrupted: then there was no other.
    """

    steps: int
    interrupted: bool = False
    stopped: bool = False
    failed: bool = False
    trial: bool = False


def set_rates(optimiser: torch.optim.Optimizer, schedule: Schedule, step: int) -> None:
    """Give every group of parameters its learning rate of a step; a group's "rate" multiplies it."""
    for group in optimiser.param_groups:
        group["lr"] = schedule.rate(step) * group.get("rate", 1.0)


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as they are now, to fall back to."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class Teller:
    """Tells the callbacks of the steps that they are due at.

    Each number that is asked of a GPU makes Python wait until the device has caught up, and the device then wait for
    Python. Those who can wait are therefore told of many steps at a time; until then the values stay on the device.

    Args:
        callbacks: Who watches.
        schedule: Of the run.
        extra_values: Further quantities, such as the noise; asked for only if somebody is to be told.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        schedule: Schedule,
        extra_values: Callable[[], dict[str, Tensor]] | None = None,
    ):
        self._callbacks = callbacks
        self._schedule = schedule
        self._extra_values = extra_values
        self._pending: list[_Told] = []

    def begin(self) -> None:
        """Tell everybody that training begins."""
        for callback in self._callbacks:
            callback.on_start(self._schedule.n_iter)

    def end(self) -> None:
        """Tell everybody that it is over."""
        for callback in self._callbacks:
            callback.on_end()

    @torch.no_grad()
    def tell(self, step: int, objective: ObjectiveValue, **plain: float) -> bool:
        """Tell those who are due; true if one of them wants to stop.

        Args:
            step: Number of the step just done, from 1.
            objective: Of the step.
            **plain: Further numbers.
        """
        last = self._schedule.n_iter
        due = [callback for callback in self._callbacks if step % callback.every == 0 or step == last]
        if not due:
            return False
        quantities = {"objective": objective.value, **objective.terms}
        if self._extra_values is not None:
            quantities.update(self._extra_values())
        means = torch.stack([value.detach().double().mean() for value in quantities.values()])
        plain = {"learning_rate": self._schedule.rate(step - 1), **plain}
        self._pending.append(_Told(step, due, list(quantities), means, plain))
        can_wait = means.is_cuda and all(callback.can_wait for callback in due) and len(self._pending) < _TOLD_AT_ONCE
        return False if can_wait else self.catch_up()

    def catch_up(self) -> bool:
        """Tell of everything that somebody still waits for; true if one of them wants to stop."""
        pending, self._pending = self._pending, []
        if not pending:
            return False
        wishes: list[bool] = []
        numbers = torch.cat([told.means for told in pending]).tolist()
        for told in pending:
            means, numbers = numbers[: len(told.names)], numbers[len(told.names) :]
            values = dict(zip(told.names, means, strict=True)) | told.plain
            report = StepReport(told.step, self._schedule.n_iter, values)
            # Every callback is told, whatever the ones before it answered.
            wishes += [bool(callback.on_step(report)) for callback in told.due]
        return any(wishes)


@dataclass(frozen=True)
class _Told:
    """A step that somebody is to be told of."""

    step: int
    due: Sequence[Callback]
    names: list[str]
    means: Tensor
    plain: dict[str, float]


@contextmanager
def running(module: nn.Module, teller: Teller) -> Generator[InterruptGuard]:
    """A run from its first step to its last: callbacks are told of both, Ctrl-C waits for the end of a step.

    Args:
        module: Is in training mode meanwhile.
        teller: Knows who watches.

    Example:
        >>> net = nn.Linear(1, 1).eval()
        >>> with running(net, Teller([], Schedule(10))) as guard:
        ...     print(net.training, guard.requested)
        True False
        >>> net.training
        False
    """
    teller.begin()
    module.train()
    try:
        with InterruptGuard() as guard:
            yield guard
        teller.catch_up()
    finally:
        module.eval()
        teller.end()
