"""What the checks of a diagnosis look at: predictions of held-out rows, and what is known of the training rows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gdkl.estimators.diagnostics.training import TrainingRows, scaled_rows, training_rows
from gdkl.inputs import FloatArray, as_frame, check_targets
from gdkl.methods import STUDENT
from gdkl.numerics import DataError
from gdkl.predictive import ClassPredictive, Predictive, class_index
from gdkl.training import Stack

#: Draws for the log-likelihood that a model expects: its error is a tenth of that of the rows themselves.
_DRAWS = 100


@dataclass(frozen=True)
class Evidence:
    """Predictions of held-out rows, with what came true.

    Attributes:
        estimator: The fitted estimator.
        X: The held-out rows, as the user has them.
        y: Their targets or labels.
        p: What is predicted of them, of one target or of several.
        rows: The rows scaled, ``(m, d)``.
        training: The training rows; None where they are not known.
        output: Number of the target, where it is one of several.
    """

    estimator: Any
    X: Any
    y: NDArray[Any]
    p: Predictive | ClassPredictive
    rows: FloatArray
    training: TrainingRows | None
    output: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_classes(self) -> bool:
        """Whether the targets are labels."""
        return isinstance(self.p, ClassPredictive)

    def outputs(self) -> list[Evidence]:
        """That of each target on its own."""
        if isinstance(self.p, ClassPredictive) or len(self.p.shape) == 1:
            return [self]
        p, training = self.p, self.training
        return [
            replace(
                self,
                y=self.y[:, k],
                p=p.output(k),
                training=None if training is None else training.output(k),
                output=k,
            )
            for k in range(p.shape[1])
        ]

    @cached_property
    def log_prob(self) -> FloatArray:
        """Log-likelihood of each held-out row, the sum of several targets."""
        return _by_row(self.p.log_prob(self.y))

    @cached_property
    def shortfall(self) -> FloatArray:
        """By how much each row is less probable than the model expects: 0 in the mean if the model is right."""
        if isinstance(self.p, ClassPredictive):
            return -self.p.entropy - self.log_prob
        draws = self.p.sample(_DRAWS, random_state=0)
        expected = np.mean([_by_row(self.p.log_prob(draw)) for draw in draws], axis=0)
        return expected - self.log_prob

    def some(self, most: int) -> Evidence:
        """The same for so many held-out rows at most, evenly spaced; for what must be predicted anew."""
        if len(self) <= most:
            return self
        rows = np.linspace(0, len(self) - 1, most).round().astype(int)
        table = as_frame(self.X)
        X = table.iloc[rows] if isinstance(table, pd.DataFrame) else np.asarray(table)[rows]
        return replace(self, X=X, y=self.y[rows], p=self.p[rows], rows=self.rows[rows])

    def by_models(self, names: list[str]) -> Evidence:
        """The same predicted by some models of the stack, with their weights among themselves."""
        stack: Stack = self.estimator.stack_
        index = [list(stack.models).index(name) for name in names]
        weights = stack.weights[index]
        temperatures = None if stack.temperatures is None else stack.temperatures[index]
        models = {name: stack.models[name] for name in names}
        return self.with_stack(
            replace(stack, models=models, weights=weights / weights.sum(dim=0), temperatures=temperatures)
        )

    def with_stack(self, stack: Stack) -> Evidence:
        """The same predicted by another stack."""
        other = copy(self.estimator)
        other.stack_ = stack
        if STUDENT in stack.models:
            other.model_ = stack.models[STUDENT]
        found = other.predict_distribution(self.X)
        return replace(self, estimator=other, p=found if self.output is None else found.output(self.output))

    @property
    def guides(self) -> list[str]:
        """Names of the guides in a stack that has a student, too."""
        names = list(self.estimator.stack_.models)
        return [name for name in names if name != STUDENT] if STUDENT in names else []

    def latent_variance_at(self, rows: FloatArray) -> FloatArray:
        """Variance of the function at scaled rows ``(m, d)``, over outputs the mean; of classes the student's."""
        estimator = self.estimator
        like = estimator.model_.noise
        scaled = torch.as_tensor(rows).to(like.device, torch.float64).unsqueeze(0)
        if self.is_classes:
            found = estimator.model_.marginals(scaled)
            variance = found.variance.mean(dim=0) + found.mean.var(dim=0, correction=0)
            return variance.mean(dim=0).double().cpu().numpy()
        mean, variance, _ = estimator.stack_.marginals(scaled)
        weights = estimator.stack_.component_weights().to(mean).unsqueeze(-1)
        centre = (weights * mean).sum(dim=0)
        total = (weights * (variance + (mean - centre).square())).sum(dim=0)
        return total.mean(dim=0).double().cpu().numpy()


def _by_row(values: FloatArray) -> FloatArray:
    return values if values.ndim == 1 else values.sum(axis=1)


def gather(estimator: Any, X: Any, y: Any, train: tuple[Any, Any] | None = None) -> Evidence:
    """Predict held-out rows, and find what the model knows of its training rows.

    Args:
        estimator: A fitted estimator.
        X: Held-out rows.
        y: What came true.
        train: The rows and targets of ``fit``, for models that do not hold them.
    """
    if not hasattr(estimator, "_require_fitted"):
        raise DataError(
            f"a {type(estimator).__name__} is no estimator of gdkl: pass one; of a Pipeline its last step, with rows "
            "that the steps before have transformed."
        )
    estimator._require_fitted()
    p = estimator.predict_distribution(X)
    if isinstance(p, ClassPredictive):
        given = np.asarray(y).reshape(-1)
        p.log_prob(given)  # refuses labels that were not there in fit, and another number of them
        targets = p.classes[class_index(p.classes, given)]
    else:
        targets = cast("NDArray[Any]", check_targets(estimator, y, len(p))).reshape(-1, *p.shape[1:])
        if targets.shape != p.shape:
            raise DataError(f"y has shape {np.shape(y)}: the model predicts targets of shape {p.shape}.")
    return Evidence(estimator, X, targets, p, scaled_rows(estimator, X), training_rows(estimator, train))
