"""Who watches a run hears of its steps: reports to callbacks, and how training ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl.objectives import ObjectiveValue
from gdkl.training.callbacks import Callback, StepReport
from gdkl.training.schedule import Schedule

#: Steps per flush to callbacks that can wait.
_STEPS_PER_FLUSH = 50


@dataclass(frozen=True)
class TrainingOutcome:
    """How training ended.

    Attributes:
        steps: Steps done.
        interrupted: Whether the user ended it early.
        stopped: Whether a callback did.
        rollbacks: How often training went back to its last good state, with half the learning rate.
        trial: Whether it was a first fit, to some of the rows, that the user interrupted: then there was no other.
    """

    steps: int
    interrupted: bool = False
    stopped: bool = False
    rollbacks: int = 0
    trial: bool = False


@dataclass(frozen=True)
class _Pending:
    """A step that has not been reported yet."""

    step: int
    due: Sequence[Callback]
    names: list[str]
    means: Tensor
    plain: dict[str, float]


class CallbackDispatcher:
    """Calls the callbacks that are due after a step.

    Reading a number off a GPU makes Python wait for the device, and the device then wait for Python. Callbacks that
    can wait therefore get the reports of many steps at a time; until then the values stay on the device.

    Args:
        callbacks: Who is called.
        schedule: Of the run.
        extra_values: Further quantities, such as the noise; computed only if somebody is due.
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
        self._pending: list[_Pending] = []

    def start(self) -> None:
        """Call every callback before the first step."""
        for callback in self._callbacks:
            callback.on_start(self._schedule.n_iter)

    def end(self) -> None:
        """Call every callback after the last step."""
        for callback in self._callbacks:
            callback.on_end()

    @torch.no_grad()
    def after_step(self, step: int, objective: ObjectiveValue, **plain: float) -> bool:
        """Report a step to those that are due; true if one of them wants to stop.

        Args:
            step: Number of the step just done, from 1.
            objective: Of the step.
            **plain: Further numbers; the learning rate where it is not the schedule's.
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
        self._pending.append(_Pending(step, due, list(quantities), means, plain))
        wait = means.is_cuda and all(callback.can_wait for callback in due) and len(self._pending) < _STEPS_PER_FLUSH
        return False if wait else self.flush()

    def flush(self) -> bool:
        """Report every step that has not been yet; true if a callback wants to stop."""
        pending, self._pending = self._pending, []
        if not pending:
            return False
        wishes: list[bool] = []
        numbers = torch.cat([one.means for one in pending]).tolist()
        for one in pending:
            means, numbers = numbers[: len(one.names)], numbers[len(one.names) :]
            values = dict(zip(one.names, means, strict=True)) | one.plain
            report = StepReport(one.step, self._schedule.n_iter, values)
            # Every callback is called, whatever the ones before it returned.
            wishes += [bool(callback.on_step(report)) for callback in one.due]
        return any(wishes)
