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


@dataclass(frozen=True)
class TrainingOutcome:
    """How training ended: steps done, and whether the user, a callback or a numerical failure ended it early."""

    steps: int
    interrupted: bool = False
    stopped: bool = False
    failed: bool = False


@contextmanager
def running(module: nn.Module, callbacks: Sequence[Callback], n_iter: int) -> Generator[InterruptGuard]:
    """A run from its first step to its last: callbacks are told of both, Ctrl-C waits for the end of a step.

    Args:
        module: Is in training mode meanwhile.
        callbacks: Who watches.
        n_iter: Number of steps planned.

    Example:
        >>> net = nn.Linear(1, 1).eval()
        >>> with running(net, [], 10) as guard:
        ...     print(net.training, guard.requested)
        True False
        >>> net.training
        False
    """
    for callback in callbacks:
        callback.on_start(n_iter)
    module.train()
    try:
        with InterruptGuard() as guard:
            yield guard
    finally:
        module.eval()
        for callback in callbacks:
            callback.on_end()


def set_rates(optimiser: torch.optim.Optimizer, schedule: Schedule, step: int) -> None:
    """Give every group of parameters its learning rate of a step; a group's "rate" multiplies it."""
    for group in optimiser.param_groups:
        group["lr"] = schedule.rate(step) * group.get("rate", 1.0)


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as they are now, to fall back to."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def tell(
    callbacks: Sequence[Callback],
    step: int,
    schedule: Schedule,
    objective: ObjectiveValue,
    extra_values: Callable[[], dict[str, Tensor]] | None,
    **plain: float,
) -> bool:
    """Tell the callbacks that are due of a step; true if one of them wants to stop.

    Args:
        callbacks: Who watches.
        step: Number of the step just done, from 1.
        schedule: Of the run.
        objective: Of the step.
        extra_values: Further quantities, such as the noise; asked for only if somebody is to be told.
        **plain: Further numbers.
    """
    due = [callback for callback in callbacks if step % callback.every == 0 or step == schedule.n_iter]
    if not due:
        return False
    with torch.no_grad():
        quantities = {"objective": objective.value, **objective.terms}
        if extra_values is not None:
            quantities.update(extra_values())
        # All at once: each number that is asked of a GPU makes Python wait for it.
        means = torch.stack([value.double().mean() for value in quantities.values()]).tolist()
    values = dict(zip(quantities, means, strict=True)) | {"learning_rate": schedule.rate(step - 1)} | plain
    report = StepReport(step, schedule.n_iter, values)
    # Every callback is told, whatever the ones before it answered.
    answers = [bool(callback.on_step(report)) for callback in due]
    return any(answers)
