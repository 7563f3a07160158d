"""The mini-batch loop: one gradient step on a batch at a time, whatever the objective is, for any number of rows."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from gdkl.numerics import NumericsError, NumericsWarning, OptionError
from gdkl.objectives import ObjectiveValue
from gdkl.training.batches import ALONE, World
from gdkl.training.callbacks import Callback, ProgressDisplay, StepReport
from gdkl.training.distributed import average, average_gradients, share_state, wait_for_all
from gdkl.training.rotation import RotatingCheckpoint
from gdkl.training.run import Teller, TrainingOutcome, copy_state, running, set_rates
from gdkl.training.schedule import Schedule

#: Steps between looks at the objective on a GPU: each makes Python wait for the device.
_LOOK_EVERY = {"cpu": 1, "cuda": 50}

#: Steps between copies of the parameters that a numerical failure falls back to.
_SNAPSHOT_EVERY = 200


@dataclass(frozen=True)
class MiniBatchSettings:
    """How steps are taken.

    Attributes:
        schedule: Steps and learning rates.
        momentum: Of stochastic gradient descent; None for Adam.
        nesterov: Whether that momentum looks ahead.
        clip: Largest norm that a gradient keeps; None for no limit.
        checkpoint: Where a run that may be killed keeps its state.
        world: Which of several processes this one is.
    """

    schedule: Schedule
    momentum: float | None = None
    nesterov: bool = False
    clip: float | None = None
    checkpoint: RotatingCheckpoint | None = None
    world: World = ALONE

    def __post_init__(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise OptionError(f"clip={self.clip!r} must be positive, or None for no limit.")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise OptionError(f"momentum={self.momentum!r} must be at least 0 and below 1.")


def train_mini_batch(
    module: nn.Module,
    groups: Sequence[dict[str, Any]],
    loss: Callable[[int], ObjectiveValue],
    settings: MiniBatchSettings,
    callbacks: Sequence[Callback] = (),
    *,
    steps_per_epoch: float,
    extra_values: Callable[[], dict[str, Tensor]] | None = None,
) -> TrainingOutcome:
    """Minimise an objective over batches.

    Args:
        module: Owner of everything that is learned.
        groups: Groups of parameters, as torch optimisers take them; a group's "rate" multiplies its learning rate.
        loss: Objective at a step, counted from 0, over the batch of that step; one that has no graph comes with its
            gradients in place.
        settings: How steps are taken.
        callbacks: Called after each step, in the first process alone; their values have the epoch as well.
        steps_per_epoch: Steps in which every row is seen once.
        extra_values: Further quantities for the callbacks, such as the noise.

    Returns:
        How training ended. ``module`` holds the last state, or the last good one after a failure.

    Raises:
        NumericsError: If the objective is not finite before anything was learned.
        DataError: If checkpoints cannot be written.
    """
    schedule, checkpoint, world = settings.schedule, settings.checkpoint, settings.world
    optimiser = _optimiser(groups, settings)
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    device = parameters[0].device
    if checkpoint is not None and world.rank == 0:
        checkpoint.check_writable()
    wait_for_all(world)
    first = 0 if checkpoint is None else checkpoint.restore(module, optimiser, device)
    share_state(module, world)
    teller = Teller(list(callbacks) if world.rank == 0 else [], schedule, extra_values)
    watch = _Watch(device, first, schedule.n_iter)
    snapshot = copy_state(module)
    step, stop = first, False
    with running(module, teller) as guard:
        while step < schedule.n_iter and not stop and not guard.requested:
            set_rates(optimiser, schedule, step)
            try:
                objective = loss(step)
                watch.add(step, objective)
                watch.look_if_due(step)
            except NumericsError as error:
                return _failed(module, snapshot, error, step, first, settings)
            if step % _SNAPSHOT_EVERY == 0:
                # The objective that was looked at last came from these very parameters.
                snapshot = copy_state(module)
            _descend(optimiser, objective, parameters, settings)
            step += 1
            if checkpoint is not None and world.rank == 0 and checkpoint.due(step) and watch.fine(module):
                checkpoint.save(step, module, optimiser, device)
            stop = teller.tell(step, objective, epoch=step / steps_per_epoch)
            if world.size > 1:
                # What the first process was told counts for all.
                wish = torch.tensor([float(stop)], device=objective.value.device)
                stop = bool(average(wish, world) > 0)
        try:
            watch.look()
            _require_finite_parameters(module, step)
        except NumericsError as error:
            return _failed(module, snapshot, error, step, first, settings)
        if checkpoint is not None and world.rank == 0 and step < schedule.n_iter:
            # Stopped by the user or a callback: what was learned is kept.
            checkpoint.save(step, module, optimiser, device)
        return TrainingOutcome(step, interrupted=guard.requested, stopped=stop)


def _descend(
    optimiser: torch.optim.Optimizer, objective: ObjectiveValue, parameters: list[Tensor], settings: MiniBatchSettings
) -> None:
    """One gradient step."""
    if objective.value.requires_grad:
        optimiser.zero_grad(set_to_none=True)
        objective.value.sum().backward()
    average_gradients(parameters, settings.world)
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(parameters, settings.clip, foreach=True)
    optimiser.step()


def _optimiser(groups: Sequence[dict[str, Any]], settings: MiniBatchSettings) -> torch.optim.Optimizer:
    schedule = settings.schedule
    given = [group for group in groups if group["params"]]
    if settings.momentum is None:
        return torch.optim.Adam(given, lr=schedule.learning_rate, betas=(0.9, schedule.memory), fused=True)
    return torch.optim.SGD(
        given, lr=schedule.learning_rate, momentum=settings.momentum, nesterov=settings.nesterov, fused=True
    )


class _Watch:
    """Looks at the objectives of the last steps together, and names the first that is not finite."""

    def __init__(self, device: torch.device, first: int, last: int):
        self.every = _LOOK_EVERY.get(device.type, 50)
        self.first, self.last = first, last
        self._pending: list[tuple[int, ObjectiveValue]] = []

    def add(self, step: int, objective: ObjectiveValue) -> None:
        detached = ObjectiveValue(
            objective.value.detach(), {name: term.detach() for name, term in objective.terms.items()}
        )
        self._pending.append((step, detached))

    def look_if_due(self, step: int) -> None:
        if step == self.first or step % _SNAPSHOT_EVERY == 0 or len(self._pending) >= self.every:
            self.look()

    def look(self) -> None:
        """Raise a `NumericsError` that names the first bad step and its terms."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        values = torch.stack([objective.value for _, objective in pending])
        if bool(torch.isfinite(values).all()):
            return
        for step, objective in pending:
            if not bool(torch.isfinite(objective.value).all()):
                broken = [name for name, term in objective.terms.items() if not bool(torch.isfinite(term).all())]
                raise NumericsError(
                    f"the objective of step {step + 1} is not finite (terms: {', '.join(broken) or 'their sum'})."
                )

    def fine(self, module: nn.Module) -> bool:
        """Whether everything so far was finite: only then is a state worth keeping. The loop tells of what was not."""
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


def _failed(
    module: nn.Module,
    snapshot: dict[str, Tensor],
    error: NumericsError,
    step: int,
    first: int,
    settings: MiniBatchSettings,
) -> TrainingOutcome:
    """Fall back to the last good parameters; before the first step there are none that were learned."""
    if step == first:
        raise error
    module.load_state_dict(snapshot)
    kept = "" if settings.checkpoint is None else " The last good checkpoint stays."
    warnings.warn(
        f"Training stopped at step {step + 1} of {settings.schedule.n_iter}: {error} The parameters of at most "
        f"{_SNAPSHOT_EVERY} steps before are kept; lower learning_rate or set a limit to the gradient if this stays."
        f"{kept}",
        NumericsWarning,
        stacklevel=3,
    )
    return TrainingOutcome(step, failed=True)


class EpochProgress(ProgressDisplay):
    """Progress of a run over batches: epochs, rows a second, the objective and its terms, time left.

    Args:
        description: What is being trained.
        rows_per_step: Rows that all processes see in a step.
        stream: Where to write; standard error by default.
        lines: Lines that a run writes where there is no terminal.
    """

    #: Quantities that are not terms of the objective.
    _OTHERS = ("objective", "learning_rate", "epoch", "step")

    def __init__(self, description: str, rows_per_step: int, stream: TextIO | None = None, lines: int = 20):
        super().__init__(description, stream if stream is not None else sys.stderr)
        self.rows_per_step = rows_per_step
        self.lines = lines
        self._last: tuple[int, float] | None = None

    def on_start(self, n_iter: int) -> None:
        """Open the bar."""
        super().on_start(n_iter)
        self._last = None
        if not self.stream.isatty():
            self.every = max(1, n_iter // self.lines)

    def on_step(self, report: StepReport) -> bool | None:
        """Move the bar or write a line."""
        now = time.monotonic()
        before, then = self._last if self._last is not None else (report.step - self.every, self._started)
        rate = (report.step - before) / max(now - then, 1e-9)
        self._last = (report.step, now)
        terms = ", ".join(f"{name} {value:.4g}" for name, value in report.values.items() if name not in self._OTHERS)
        left = (report.n_iter - report.step) / rate
        line = (
            f"epoch {report.values['epoch']:.1f}, {rate * self.rows_per_step:,.0f} rows/s, "
            f"objective {report.values['objective']:.4f} ({terms})"
        )
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=report.step, objective=line)
        else:
            print(
                f"{self.description}: step {report.step} of {report.n_iter}, {line}, {left:.0f} s left",
                file=self.stream,
                flush=True,
            )
        return None
