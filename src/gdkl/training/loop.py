"""The training loop: one gradient step at a time, on all rows or on a batch, whatever the objective is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from gdkl.numerics import NumericsError
from gdkl.objectives import ObjectiveValue
from gdkl.training.dispatch import CallbackDispatcher, TrainingOutcome
from gdkl.training.distributed import any_of, average_gradients, share_state, wait_for_all
from gdkl.training.interrupts import InterruptGuard
from gdkl.training.options import StudentOptions
from gdkl.training.recovery import LastGood, Watch, require_finite_parameters


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
        How training ended; ``module`` holds the last state.

    Raises:
        NumericsError: If the objective is not finite before anything was learned, or once more after training went back
            to its last good state, with half the learning rate, three times.
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
    watch, good = Watch(device), LastGood(module, optimiser, device, schedule.n_iter)
    good.keep(first)
    done, stop, interrupted = first, False, False
    with _running(module, dispatcher) as guard:
        while done < schedule.n_iter and not (world.size == 1 and (stop or guard.requested)):
            interrupted = guard.requested
            rate = schedule.rate(done) * good.rate_factor
            set_rates(optimiser, rate)
            objective, error = _attempt(step, done, watch, look=good.due(done))
            save = checkpoint is not None and world.rank == 0 and checkpoint.due(done + 1)
            # What one process meets or decides counts for all: of gradients every one waits for every other.
            wishes = (error is not None, stop, interrupted, save)
            failed, stop, interrupted, save = any_of(wishes, device, world)
            if world.size > 1 and (stop or interrupted):
                watch.forget()
                break
            if failed:
                _recover(good, watch, error, done)
                done += 1
                continue
            if good.due(done):
                # The objective that was looked at came from these very parameters.
                good.keep(done)
            average_gradients(parameters, world)
            optimiser.step()
            done += 1
            if save and not any_of([not watch.is_finite(module)], device, world)[0]:
                # A resumed run has nothing else to go back to.
                good.keep(done)
                if checkpoint is not None and world.rank == 0:
                    checkpoint.save(done, module, optimiser, device)
            epoch = {} if steps_per_epoch is None else {"epoch": done / steps_per_epoch}
            stop = dispatcher.after_step(done, cast(ObjectiveValue, objective), learning_rate=rate, **epoch)
        error = _last_look(watch, module, done)
        if any_of([error is not None], device, world)[0]:
            _recover(good, watch, error, done - 1)
        if checkpoint is not None and world.rank == 0 and done < schedule.n_iter:
            # Stopped by the user or a callback: what was learned is kept.
            checkpoint.save(done, module, optimiser, device)
        return TrainingOutcome(done, interrupted=interrupted or guard.requested, stopped=stop, rollbacks=good.rollbacks)


def _attempt(
    step: Callable[[int], ObjectiveValue], number: int, watch: Watch, *, look: bool
) -> tuple[ObjectiveValue | None, NumericsError | None]:
    """Take a step's objective and gradients; a failure is returned, for other processes may be waiting."""
    try:
        objective = step(number)
        watch.add(number, objective)
        if look:
            watch.look()
    except NumericsError as error:
        return None, error
    return objective, None


def _last_look(watch: Watch, module: nn.Module, done: int) -> NumericsError | None:
    """What is wrong after the last step."""
    try:
        watch.look()
        require_finite_parameters(module, done)
    except NumericsError as error:
        return error
    return None


def _recover(good: LastGood, watch: Watch, error: NumericsError | None, step: int) -> None:
    """Go back after a failure in a step, here or in another process; raise it where nothing was learned before."""
    watch.forget()
    error = error or NumericsError(f"step {step + 1} failed in another process.")
    if step <= 0:
        raise error
    good.go_back(error, step)


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
