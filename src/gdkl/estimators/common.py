"""What regressors and classifiers share: how a fit is watched, saved and made repeatable."""

from __future__ import annotations

import os
import warnings
from abc import ABC
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor

from gdkl.estimators.resuming import FitCheckpoints
from gdkl.estimators.saving import save
from gdkl.numerics import InterruptedFitWarning, NotFittedError, OptionError
from gdkl.predictive import FloatArray
from gdkl.training import Callback, EpochProgress, ProgressDisplay, TrainingOutcome, as_callbacks


class EstimatorBase(BaseEstimator, ABC):
    """Options that every estimator has, and what does not depend on the kind of target."""

    device: str
    dtype: str
    random_state: Any
    verbose: int

    history_: pd.DataFrame
    n_iter_: int
    #: "exact" or "sparse"; estimators without the choice do not have it.
    inference_: str

    def _callbacks(self, rows_per_step: int | None = None) -> list[Callback]:
        """Progress, if it is to be shown, and the user's own; with a number of rows a step, of a run over batches."""
        name = type(self).__name__
        shown: Callback = ProgressDisplay(name) if rows_per_step is None else EpochProgress(name, rows_per_step)
        progress = [shown] if self.verbose else []
        return [*progress, *as_callbacks(getattr(self, "callbacks", None))]

    #: Of the fit that is under way, where the user wants any.
    _checkpoints: FitCheckpoints | None = None

    @contextmanager
    def _resumable(
        self, seed: int, data: Callable[[], str], order: str | None = None
    ) -> Generator[FitCheckpoints | None]:
        """Keeps checkpoints of the training inside, if the user gave a folder for them.

        Args:
            seed: Of the fit.
            data: What identifies the data; asked for only if it is needed.
            order: Of a loader, what identifies the order of its batches.
        """
        folder = getattr(self, "checkpoint_dir", None)
        if folder is None:
            yield None
            return
        self._checkpoints = FitCheckpoints(folder, self, seed, data(), order)
        try:
            yield self._checkpoints
        finally:
            del self._checkpoints

    def _tell_of_interrupt(self, outcome: TrainingOutcome | None) -> None:
        if outcome is not None and outcome.interrupted:
            trial = " It was a first fit, to some of the rows, and the model knows those alone."
            warnings.warn(
                f"Training was interrupted after {outcome.steps} steps; the model is usable as it stood then."
                + (trial if outcome.trial else ""),
                InterruptedFitWarning,
                stacklevel=3,
            )

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safe file; `gdkl.load` reads it back."""
        save(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def draw_seed(random_state: Any) -> int:
    """A seed from whatever scikit-learn takes as ``random_state``, or from a NumPy generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise OptionError(
            f"random_state={random_state!r} is not allowed: use None, a whole number from 0 to 4294967295 or a "
            "NumPy generator."
        ) from error


def to_numpy(tensor: Tensor) -> FloatArray:
    """A tensor as an array in float64."""
    return tensor.detach().double().cpu().numpy()
