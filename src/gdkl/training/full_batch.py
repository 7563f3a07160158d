"""The full-batch loop: one gradient step on all rows at a time, whatever the objective is."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.objectives import ObjectiveValue
from gdkl.training.adam import LeanAdam
from gdkl.training.callbacks import Callback
from gdkl.training.checkpoint import Checkpoint
from gdkl.training.run import Teller, TrainingOutcome, copy_state, running, set_rates
from gdkl.training.schedule import Schedule

#: Steps between copies of the parameters that a numerical failure falls back to.
_SNAPSHOT_EVERY = 50


def train_full_batch(
    module: nn.Module,
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
    loss: Callable[[int], ObjectiveValue],
    schedule: Schedule,
    callbacks: Sequence[Callback] = (),
    *,
    extra_values: Callable[[], dict[str, Tensor]] | None = None,
    momentum: float | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainingOutcome:
    """Minimise an objective by Adam, or by gradient descent with momentum.

    The objective has one value a member; their sum is differentiated, so members never feel each other.

    Args:
        module: Owner of everything that a fall-back must restore.
        parameters: Parameters, or groups of them with options, as torch optimisers take them; a group's "rate"
            multiplies its learning rate.
        loss: Objective at a step, counted from 0; asked for each step in turn, the first may be a later one.
        schedule: Steps and learning rates.
        callbacks: Called after each step.
        extra_values: Further quantities for the callbacks, such as the noise.
        momentum: Of gradient descent; None for Adam.
        checkpoint: Where the state is kept, and gone on from; None for a run that need not survive.

    Returns:
        How training ended. ``module`` holds the last state, or the last good one after a failure.

    Raises:
        NumericsError: If the objective is not finite before anything was learned.
    """
    if momentum is None:
        optimiser: torch.optim.Optimizer = LeanAdam(parameters, schedule.learning_rate, schedule.memory)
    else:
        optimiser = torch.optim.SGD(parameters, lr=schedule.learning_rate, momentum=momentum)
    device = next(iter(module.parameters())).device
    first = 0 if checkpoint is None else checkpoint.restore(module, optimiser, device)
    snapshot = copy_state(module)
    step, stop = first, False
    teller = Teller(callbacks, schedule, extra_values)
    with running(module, teller) as guard:
        while step < schedule.n_iter and not stop and not guard.requested:
            set_rates(optimiser, schedule, step)
            try:
                objective = loss(step)
                _require_finite(objective, step)
            except NumericsError as error:
                if step == first:
                    raise
                module.load_state_dict(snapshot)
                warnings.warn(
                    f"Training stopped at step {step + 1} of {schedule.n_iter}: {error} The parameters of "
                    f"at most {_SNAPSHOT_EVERY} steps before are kept; lower learning_rate if this stays.",
                    NumericsWarning,
                    stacklevel=2,
                )
                return TrainingOutcome(step, failed=True)
            if step % _SNAPSHOT_EVERY == 0:
                snapshot = copy_state(module)
            descend(optimiser, objective.value)
            step += 1
            if checkpoint is not None:
                checkpoint.save_if_due(step, module, optimiser, device)
            stop = teller.tell(step, objective)
        # Parameters alone: buffers may hold infinities on purpose, such as a constraint's upper bound.
        if not all(bool(torch.isfinite(value).all()) for value in module.parameters()):
            # The last step's gradient overflowed, and no later objective was there to notice.
            module.load_state_dict(snapshot)
            warnings.warn(
                f"The last step of {step} overflowed; the parameters of at most {_SNAPSHOT_EVERY} steps before "
                "are kept. Lower learning_rate if this stays.",
                NumericsWarning,
                stacklevel=2,
            )
            return TrainingOutcome(step, interrupted=guard.requested, stopped=stop, failed=True)
        return TrainingOutcome(step, interrupted=guard.requested, stopped=stop)


def descend(optimiser: torch.optim.Optimizer, value: Tensor) -> None:
    """Move the parameters against the gradient of the members' values."""
    if isinstance(optimiser, LeanAdam):
        optimiser.clear_gradients()
        value.backward(torch.ones_like(value))
        optimiser.advance()
    else:
        optimiser.zero_grad(set_to_none=True)
        value.backward(torch.ones_like(value))
        optimiser.step()


def _require_finite(objective: ObjectiveValue, step: int) -> None:
    # A sum is finite if every value is, and one overflow of a sum of finite ones would be no better.
    if math.isfinite(float(objective.value.detach().sum())):
        return
    broken = [name for name, value in objective.terms.items() if not bool(torch.isfinite(value).all())]
    raise NumericsError(f"the objective is not finite (terms: {', '.join(broken) or 'their sum'}).")
