"""Scores of a regression `Predictive` against the targets that came true.

All averages run over every entry of the targets. Log-likelihood: larger is better; the others: smaller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from gdkl.numerics import DataError
from gdkl.predictive import FloatArray, Predictive


def _targets(predictive: Predictive, y: ArrayLike) -> FloatArray:
    values = np.asarray(y, dtype=np.float64)
    if values.size != predictive.mean.size:
        raise DataError(f"y has shape {values.shape}; the prediction is for targets of shape {predictive.shape}.")
    if not bool(np.isfinite(values).all()):
        raise DataError("y has NaN or infinite values: drop those rows before scoring.")
    return values.reshape(predictive.shape)


def log_likelihood(predictive: Predictive, y: ArrayLike) -> float:
    """Mean log density of the targets, noise included, in the targets' own units.

    Example:
        >>> p = Predictive.gaussian([0.0], [1.0], [0.5])
        >>> round(log_likelihood(p, [0.0]), 4)
        -0.9189
    """
    return float(predictive.log_prob(_targets(predictive, y)).mean())


def rmse(predictive: Predictive, y: ArrayLike) -> float:
    """Root of the mean squared error of the predictive mean.

    Example:
        >>> rmse(Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]), [3.0, -3.0])
        3.0
    """
    return float(np.sqrt(np.mean((predictive.mean - _targets(predictive, y)) ** 2)))


def mae(predictive: Predictive, y: ArrayLike) -> float:
    """Mean absolute error of the predictive mean.

    Example:
        >>> mae(Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]), [3.0, -1.0])
        2.0
    """
    return float(np.mean(np.abs(predictive.mean - _targets(predictive, y))))


def _expected_absolute(mean: FloatArray, std: FloatArray) -> FloatArray:
    """E|Z| for Z ~ N(mean, std²)."""
    ratio = mean / std
    density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    return 2 * std * density + mean * (2 * ndtr(ratio) - 1)


def crps(predictive: Predictive, y: ArrayLike) -> float:
    """Mean continuous ranked probability score, E|Y − y| − ½·E|Y − Y'|, in the targets' units.

    Example:
        >>> round(crps(Predictive.gaussian([0.0], [1.0], [0.5]), [0.0]), 4)
        0.2337
    """
    y = _targets(predictive, y)
    means, variances = predictive.component_means, predictive.component_variances
    to_target = _expected_absolute(means - y, np.sqrt(variances)).mean(axis=0)
    between = np.zeros_like(to_target)
    for mean, variance in zip(means, variances, strict=True):
        between += _expected_absolute(mean - means, np.sqrt(variance + variances)).mean(axis=0)
    return float(np.mean(to_target - 0.5 * between / predictive.n_components))


def coverage(predictive: Predictive, y: ArrayLike, level: float = 0.9) -> float:
    """Part of the targets inside the central interval; honest uncertainty gives ``level``.

    Example:
        >>> coverage(Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]), [0.0, 9.0])
        0.5
    """
    y = _targets(predictive, y)
    low, high = predictive.interval(level)
    return float(np.mean((low <= y) & (y <= high)))


def interval_width(predictive: Predictive, level: float = 0.9) -> float:
    """Mean width of the central interval, in the targets' units; at equal coverage, narrower is better.

    Example:
        >>> round(interval_width(Predictive.gaussian([0.0], [1.0], [0.5])), 2)
        3.29
    """
    low, high = predictive.interval(level)
    return float(np.mean(high - low))


def summary(predictive: Predictive, y: ArrayLike, level: float = 0.9) -> dict[str, float]:
    """All scores at once, by name.

    Example:
        >>> sorted(summary(Predictive.gaussian([0.0], [1.0], [0.5]), [0.0]))
        ['coverage', 'crps', 'interval_width', 'log_likelihood', 'mae', 'rmse']
    """
    return {
        "log_likelihood": log_likelihood(predictive, y),
        "rmse": rmse(predictive, y),
        "mae": mae(predictive, y),
        "crps": crps(predictive, y),
        "coverage": coverage(predictive, y, level),
        "interval_width": interval_width(predictive, level),
    }
