"""The training loop: one gradient step at a time, on all rows or on a batch, whatever the objective is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.objectives import ObjectiveValue
from gdkl.training.dispatch import CallbackDispatcher, TrainingOutcome
from gdkl.training.distributed import average, average_gradients, share_state, wait_for_all
from gdkl.training.interrupts import InterruptGuard
from gdkl.training.options import StudentOptions

#: Steps between looks at the objective on a GPU: each makes Python wait for the device.
_LOOK_EVERY = {"cpu": 1, "cuda": 50}

#: Steps between copies of the parameters that a numerical failure falls back to.
_SNAPSHOT_EVERY = 50


def train(
    module: nn.Module,
    groups: Sequence[dict[str, Any]],
    step: Callable[[int], ObjectiveValue],
    options: StudentOptions,
    *,
    steps_per_epoch: float | None = None,
    extra_values: Callable[[], dict[str, Tensor]] | None = None,
) -> TrainingOutcome:
    """Minimise an objective by Adam, or by gradient descent with momentum.

    The objective has one value per member; gradients are those of their sum, so members do not affect each other.

    Args:
        module: Owner of everything that is learned.
        groups: Groups of parameters, as torch optimisers take them; a group's "rate" multiplies its learning rate.
        step: From the number of a step, counted from 0, to its objective without a graph, with the gradients in place;
            called for each step in turn, in a resumed run from a later one on.
        options: Schedule, optimiser, callbacks, checkpoint and processes.
        steps_per_epoch: Steps in which every row is seen once; callbacks are then given the epoch too.
        extra_values: Further quantities for the callbacks, such as the noise.

    Returns:
        How training ended. ``module`` holds the last state, or the last good one after a failure.

    Raises:
        NumericsError: If the objective is not finite before anything was learned.
        DataError: If checkpoints cannot be written.
    """
    schedule, checkpoint, world = options.schedule, options.checkpoint, options.world
    optimiser = make_optimiser(groups, options)
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    device = parameters[0].device
    if checkpoint is not None and world.rank == 0:
        checkpoint.check_writable()
    wait_for_all(world)
    first = 0 if checkpoint is None else checkpoint.restore(module, optimiser, device)
    share_state(module, world)
    dispatcher = CallbackDispatcher(list(options.callbacks) if world.rank == 0 else [], schedule, extra_values)
    watch = _Watch(device, first)
    snapshot = copy_state(module)
    done, stop = first, False
    with _running(module, dispatcher) as guard:
        try:
            while done < schedule.n_iter and not stop and not guard.requested:
                set_rates(optimiser, schedule.rate(done))
                objective = step(done)
                watch.add(done, objective)
                if done == first or done % _SNAPSHOT_EVERY == 0:
                    watch.look()
                    # The objective that was looked at last came from these very parameters.
                    snapshot = copy_state(module)
                average_gradients(parameters, world)
                optimiser.step()
                done += 1
                if checkpoint is not None and world.rank == 0 and checkpoint.due(done) and watch.is_finite(module):
                    checkpoint.save(done, module, optimiser, device)
                epoch = {} if steps_per_epoch is None else {"epoch": done / steps_per_epoch}
                stop = dispatcher.after_step(done, objective, **epoch)
                if world.size > 1:
                    # What the callbacks of the first process decide counts for all.
                    stop = bool(average(torch.tensor([float(stop)], device=device), world) > 0)
            watch.look()
            _require_finite_parameters(module, done)
        except NumericsError as error:
            if done == first:
                raise
            return _fall_back(module, snapshot, error, done, options)
        if checkpoint is not None and world.rank == 0 and done < schedule.n_iter:
            # Stopped by the user or a callback: what was learned is kept.
            checkpoint.save(done, module, optimiser, device)
        return TrainingOutcome(done, interrupted=guard.requested, stopped=stop)


def make_optimiser(groups: Sequence[dict[str, Any]], options: StudentOptions) -> torch.optim.Optimizer:
    """Adam, or stochastic gradient descent where there is a momentum; groups without parameters are left out."""
    given = [group for group in groups if group["params"]]
    schedule = options.schedule
    if options.momentum is None:
        return torch.optim.Adam(given, lr=schedule.learning_rate, betas=(0.9, schedule.beta2), fused=True)
    return torch.optim.SGD(given, lr=schedule.learning_rate, momentum=options.momentum, fused=True)


def set_rates(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of parameters the learning rate of a step; a group's "rate" multiplies it."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("rate", 1.0)


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as they are now, to fall back to."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@contextmanager
def _running(module: nn.Module, dispatcher: CallbackDispatcher) -> Generator[InterruptGuard]:
    """A run: the module in training mode, callbacks called at both ends, Ctrl-C waits for the end of a step."""
    dispatcher.start()
    module.train()
    try:
        with InterruptGuard() as guard:
            yield guard
        dispatcher.flush()
    finally:
        module.eval()
        dispatcher.end()


class _Watch:
    """Looks at the objectives of the last steps together, and names the first that is not finite."""

    def __init__(self, device: torch.device, first: int):
        self._every = _LOOK_EVERY.get(device.type, 50)
        self._pending: list[tuple[int, ObjectiveValue]] = []

    def add(self, step: int, objective: ObjectiveValue) -> None:
        self._pending.append((step, objective))
        if len(self._pending) >= self._every:
            self.look()

    def look(self) -> None:
        """Raise a `NumericsError` that names the first bad step and its terms."""
        pending, self._pending = self._pending, []
        # A sum is finite if every value is.
        if not pending or bool(torch.stack([objective.value.sum() for _, objective in pending]).isfinite().all()):
            return
        for step, objective in pending:
            if not bool(torch.isfinite(objective.value).all()):
                broken = [name for name, term in objective.terms.items() if not bool(torch.isfinite(term).all())]
                raise NumericsError(
                    f"the objective of step {step + 1} is not finite (terms: {', '.join(broken) or 'their sum'})."
                )

    def is_finite(self, module: nn.Module) -> bool:
        """Whether everything so far was finite: only then is a state worth saving. The loop reports what was not."""
        pending = list(self._pending)
        try:
            self.look()
            _require_finite_parameters(module, 0)
        except NumericsError:
            self._pending = pending
            return False
        return True


def _require_finite_parameters(module: nn.Module, step: int) -> None:
    # Parameters alone: buffers may hold infinities on purpose, such as a constraint's upper bound.
    if not all(bool(torch.isfinite(value).all()) for value in module.parameters()):
        raise NumericsError(f"a parameter is not finite after step {step}.")


def _fall_back(
    module: nn.Module, snapshot: dict[str, Tensor], error: NumericsError, step: int, options: StudentOptions
) -> TrainingOutcome:
    """Restore the last good parameters and say so."""
    module.load_state_dict(snapshot)
    kept = "" if options.checkpoint is None else " The last good checkpoint stays."
    warnings.warn(
        f"Training stopped at step {min(step + 1, options.schedule.n_iter)} of {options.schedule.n_iter}: {error} The "
        f"parameters of at most {_SNAPSHOT_EVERY} steps before are kept; lower learning_rate if "
        f"this stays.{kept}",
        NumericsWarning,
        stacklevel=3,
    )
    return TrainingOutcome(step, failed=True)
