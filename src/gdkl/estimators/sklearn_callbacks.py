"""scikit-learn's own callbacks (1.9 and newer) around a fit: a task per training run, and one per step of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdkl.training import Callback, StepReport

if TYPE_CHECKING:
    from gdkl.estimators.base import EstimatorBase

    class CallbackSupport:
        """What scikit-learn's mixin adds; before 1.9 there is nothing."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
    except ImportError:

        class CallbackSupport:
            """Before scikit-learn 1.9 there is nothing to support."""


class StepTasks(Callback):
    """Tells scikit-learn's callbacks of training runs and steps; one that answers true ends training.

    An estimator may train several times. No fitted estimator is offered in between: it would have to be conditioned
    and calibrated after every step.
    """

    can_wait = True

    def __init__(self, estimator: EstimatorBase, fit: Any):
        self._estimator = estimator
        self._fit = fit
        self._run: Any = None

    def on_start(self, n_iter: int) -> None:
        """Open the task of a training run."""
        self._run = self._fit.subcontext("training", max_subtasks=n_iter)
        self._run.call_on_fit_task_begin(estimator=self._estimator)

    def on_step(self, report: StepReport) -> bool | None:
        """Tell of a step."""
        step = self._run.subcontext("step").call_on_fit_task_begin(estimator=self._estimator)
        return step.call_on_fit_task_end(estimator=self._estimator)

    def on_end(self) -> None:
        """Close the task."""
        self._run.call_on_fit_task_end(estimator=self._estimator)


def has_callbacks(estimator: EstimatorBase) -> bool:
    """Whether callbacks of scikit-learn were set on the estimator, or handed down to it by a search or a pipeline."""
    return bool(vars(estimator).get("_skl_callbacks"))


def fit_with_callbacks(estimator: EstimatorBase, X: Any, y: Any, noise: Any) -> None:
    """Call the estimator's ``_fit`` as one task, whose training runs and steps are tasks in it."""
    from sklearn.callback import with_callbacks  # noqa: PLC0415  (not before scikit-learn 1.9)

    def fit(estimator: Any) -> None:
        task = estimator._init_callback_context(max_subtasks=None)
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        try:
            estimator._fit(X, y, noise, StepTasks(estimator, task))
        finally:
            # No attributes beside its own: the estimator is fitted.
            fitted: dict[str, Any] | None = {} if estimator.__sklearn_is_fitted__() else None
            task.call_on_fit_task_end(estimator=estimator, X=X, y=y, reconstruction_attributes=fitted)

    with_callbacks(fit)(estimator)
