"""What a fitted model still knows of its training rows: targets, scaled rows, and what it predicts of each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gdkl.calibration import mix_classes
from gdkl.estimators.base import to_numpy
from gdkl.gp import PREDICTION_SAMPLES, ExactPosterior, base_samples, class_log_probs
from gdkl.inputs import FloatArray, TargetScaler, joint_warp
from gdkl.numerics import DataError
from gdkl.predictive import ClassPredictive, Predictive
from gdkl.training import Stack

#: Part of a noise by which the noise of rows may differ before it is one of each row: what rounding leaves.
_ALIKE = 1e-3


@dataclass(frozen=True)
class TrainingRows:
    """The rows that a model was fitted to.

    Attributes:
        targets: In the user's units, or labels.
        predicted: What the model predicts of each; None where it cannot be told.
        left_out: Whether each row is left out of what predicts it, hyperparameters and features apart.
        rows: Scaled rows ``(n, d)``; None where the model does not hold them.
    """

    targets: NDArray[Any]
    predicted: Predictive | ClassPredictive | None
    left_out: bool
    rows: FloatArray | None

    def __len__(self) -> int:
        return len(self.targets)

    def output(self, k: int) -> TrainingRows:
        """Those of one of several targets."""
        predicted = self.predicted
        return replace(
            self,
            targets=self.targets[:, k],
            predicted=predicted.output(k) if isinstance(predicted, Predictive) else None,
        )


def training_rows(estimator: Any, train: tuple[Any, Any] | None = None) -> TrainingRows | None:
    """The training rows that the model holds, or that are passed; None where it holds none.

    With exact inference a model knows its targets, and what it predicts of each row given all others. Guides also hold
    the scaled rows.

    Args:
        estimator: A fitted estimator.
        train: Rows and targets of ``fit``.

    Raises:
        DataError: If what is passed are not the rows of ``fit``.
    """
    exact = estimator.stack_.is_exact
    if train is None:
        return _held(estimator, None) if exact else None
    if not isinstance(train, tuple) or len(train) != 2:
        raise DataError("train is a pair: pass train=(X, y), the rows and targets of fit.")
    (X, y), rows = train, scaled_rows(estimator, train[0])
    if not exact:
        return TrainingRows(np.asarray(y), estimator.predict_distribution(X), left_out=False, rows=rows)
    held = _held(estimator, rows)
    _check_same(held.targets, np.asarray(y))
    return held


def scaled_rows(estimator: Any, X: Any) -> FloatArray:
    """Rows as guides and networks see them, ``(m, d)``."""
    kind = estimator.kind_
    if kind.input.image_shape is None:
        return kind.input.read(estimator, X)
    return np.asarray(next(iter(kind.views(estimator, X, "plain"))), dtype=np.float64)


def _check_same(held: NDArray[Any], given: NDArray[Any]) -> None:
    same = held.shape == given.shape
    if same and held.dtype.kind == "f":
        same = bool(np.allclose(held, given.astype(np.float64), rtol=1e-3, atol=1e-3 * float(held.std())))
    elif same:
        same = bool((held == given).all())
    if not same:
        raise DataError("train is not what the model was fitted to: pass the rows and targets of fit, in its order.")


def _held(estimator: Any, rows: FloatArray | None) -> TrainingRows:
    """What an exact model knows; ``rows`` are the scaled ones of ``fit``, where they were passed."""
    stack: Stack = estimator.stack_
    found = stack.training_rows() if rows is None else None
    rows = rows if found is None else to_numpy(found)
    posterior = cast(ExactPosterior, next(iter(stack.models.values())).posterior)
    targets = posterior.targets[0]
    if not hasattr(estimator, "target_"):
        labels = estimator.classes_[targets.argmax(dim=0).cpu().numpy()]
        return TrainingRows(labels, _class_left_out(estimator), left_out=True, rows=rows)
    scaler: TargetScaler = estimator.target_
    warp, warped = joint_warp(scaler.warps), scaler.means(to_numpy(targets))
    y = warped if warp is None else warp.inverse(warped)
    told = not _differ(posterior) and (stack.log_noise is None or rows is not None)
    at = None if rows is None else torch.as_tensor(rows).to(posterior.features).unsqueeze(0)
    predicted = as_predictive(estimator, *stack.left_out(at)) if told else None
    return TrainingRows(y, predicted, left_out=True, rows=rows)


def _differ(posterior: ExactPosterior) -> bool:
    """Whether rows had noise of their own in ``fit``."""
    noise = posterior.row_noise
    low, high = noise.amin(dim=-1), noise.amax(dim=-1)
    return bool((high - low > _ALIKE * high.abs() + 1e-6).any())


def as_predictive(estimator: Any, mean: Tensor, variance: Tensor, noise: Tensor) -> Predictive:
    """Scaled latent means, variances and noise ``(K, outputs, m)`` of a regressor's stack in the target's units."""
    target: TargetScaler = estimator.target_
    total, latent = (target.variances(to_numpy(value)) for value in (variance + noise, variance))
    weights = to_numpy(estimator.stack_.component_weights())
    return Predictive(
        target.means(to_numpy(mean)),
        total,
        latent,
        weights=weights[:, 0] if target.is_1d else weights,
        warps=target.warps,
    )


def _class_left_out(estimator: Any) -> ClassPredictive:
    """Of each training label given all others: the mixture, with the student's latent functions."""
    stack: Stack = estimator.stack_
    models = list(stack.models.values())
    marginals = [cast(ExactPosterior, model.posterior).left_out() for model in models]
    # The student is the last of a stack.
    latents = marginals[-1]
    base = base_samples(PREDICTION_SAMPLES, latents.mean.shape[1], estimator.sampling_seed_)
    found: list[Tensor] = []
    for model, own in zip(models, marginals, strict=True):
        log_probs = class_log_probs(own, estimator._likelihood, model.noise.to(own.mean), base)
        found.append((log_probs.logsumexp(dim=0, keepdim=True) - np.log(len(log_probs))).to(latents.mean))
    temperatures = torch.ones(len(found)) if stack.temperatures is None else stack.temperatures
    mixed = mix_classes(torch.cat(found), stack.weights[:, 0], temperatures)
    variance = latents.variance.mean(dim=0) + latents.mean.var(dim=0, correction=0)
    return ClassPredictive(
        to_numpy(mixed).T / estimator.temperature_,
        estimator.classes_,
        to_numpy(latents.mean.mean(dim=0)).T,
        to_numpy(variance).T,
    )
