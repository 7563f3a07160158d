"""Callbacks: functions and objects that are called after the steps of a training run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gdkl.numerics import OptionError


@dataclass(frozen=True)
class StepReport:
    """What a callback sees of a step.

    Attributes:
        step: Number of the step just done, from 1.
        n_iter: Number of steps planned.
        values: Objective and its terms, noise, learning rate; averaged over members.
    """

    step: int
    n_iter: int
    values: Mapping[str, float]


class Callback:
    """Base of all callbacks: override what you need. A true return from `on_step` ends training after the step.

    Example:
        >>> class StopAtTen(Callback):
        ...     def on_step(self, report):
        ...         return report.step >= 10
    """

    #: Every how many steps `on_step` is called; reading values costs a little on a GPU.
    every: int = 1

    #: Whether a step's report may come some steps later, in order: then nobody waits for a GPU's values.
    can_wait: bool = False

    def on_start(self, n_iter: int) -> None:
        """Before the first step."""

    def on_step(self, report: StepReport) -> bool | None:
        """After a step whose number divides by `every`, and after the last."""

    def on_end(self) -> None:
        """After the last step, however training ended."""


class KeepOnInterrupt(Callback):
    """Lets an estimator's ``fit`` return normally after a Ctrl-C, with a warning, and not raise KeyboardInterrupt.

    Either way the model is usable as it stood. A script or a grid search then goes on with it, as if it were finished.

    Example:
        >>> from gdkl import GDKLRegressor
        >>> model = GDKLRegressor(callbacks=[KeepOnInterrupt()])
    """

    #: There is nothing to do after a step.
    every = sys.maxsize
    can_wait = True


class FunctionCallback(Callback):
    """A plain function of the report as a callback."""

    def __init__(self, function: Callable[[StepReport], bool | None]):
        self.function = function

    def on_step(self, report: StepReport) -> bool | None:
        """Call the function."""
        return self.function(report)


def as_callbacks(given: Any) -> list[Callback]:
    """Check what a user passed as callbacks, and wrap plain functions.

    Example:
        >>> [type(callback).__name__ for callback in as_callbacks([lambda report: report.step > 10])]
        ['FunctionCallback']
    """
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise OptionError(f"callbacks={given!r} is not allowed: pass a list of callbacks or functions.")
    callbacks: list[Callback] = []
    for one in cast("Sequence[Any]", given):
        if isinstance(one, type) or not (isinstance(one, Callback) or callable(one)):
            raise OptionError(
                f"callbacks has {one!r}: use functions of a StepReport or gdkl.training.Callback objects."
            )
        callback = one if isinstance(one, Callback) else FunctionCallback(cast(Any, one))
        if not isinstance(callback.every, int) or callback.every < 1:
            raise OptionError(f"a callback's every={callback.every!r} must be a whole number of at least 1.")
        callbacks.append(callback)
    return callbacks


@dataclass
class History(Callback):
    """Keeps one row per logged step, for `history_`.

    Args:
        every: Steps between two rows.
    """

    every: int = 1
    rows: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    can_wait = True

    def on_step(self, report: StepReport) -> bool | None:
        """Keep the values."""
        self.rows.append({"step": float(report.step), **report.values})
        return None


@dataclass
class EarlyStopping(Callback):
    """Stops when the smoothed objective has not improved by ``tol`` for ``patience`` steps.

    Each step sees another random split, so the raw objective is noisy; an exponential average over about
    ``window`` steps is what is compared.

    A fit that resumes from a checkpoint starts the average anew, and may stop at another step.
    """

    tol: float
    patience: int
    window: int = 100
    every: int = 1
    _smoothed: float | None = field(default=None, repr=False)
    _best: float = field(default=float("inf"), repr=False)
    _best_step: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not self.tol >= 0:
            raise OptionError(f"tol={self.tol!r} must not be negative.")
        if self.patience < 1 or self.window < 1:
            raise OptionError(f"patience={self.patience!r} and window={self.window!r} must be at least 1.")

    def on_step(self, report: StepReport) -> bool | None:
        """Compare the smoothed objective with the best so far."""
        value = report.values["objective"]
        # A plain average while the window fills keeps the first few, large values from lingering.
        weight = max(1.0 / report.step, 1.0 / self.window)
        self._smoothed = value if self._smoothed is None else self._smoothed + weight * (value - self._smoothed)
        if report.step <= self.window:
            # Before the window is full the average is as noisy as the objective.
            self._best, self._best_step = self._smoothed, report.step
            return None
        if self._smoothed < self._best - self.tol:
            self._best, self._best_step = self._smoothed, report.step
        return report.step - self._best_step >= self.patience
