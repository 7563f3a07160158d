"""Scores of a regression `Predictive` against the targets that came true.

All averages run over every entry of the targets. Several targets in different units are scored one by one by `summary`,
or as ``rmse(p.output(k), y[:, k])``. Log-likelihood: larger is better; the others: smaller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gdkl.numerics import DataError, OptionError
from gdkl.predictive import FloatArray, Predictive


def _targets(predictive: Predictive, y: ArrayLike) -> FloatArray:
    values = np.asarray(y, dtype=np.float64)
    if values.size != np.prod(predictive.shape):
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


def crps(predictive: Predictive, y: ArrayLike) -> float:
    """Mean continuous ranked probability score, E|Y − y| − ½·E|Y − Y'|, in the targets' units.

    Example:
        >>> round(crps(Predictive.gaussian([0.0], [1.0], [0.5]), [0.0]), 4)
        0.2337
    """
    return float(predictive.crps(_targets(predictive, y)).mean())


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


def summary(
    predictive: Predictive, y: ArrayLike, level: float = 0.9, names: Sequence[str] | None = None
) -> dict[str, float]:
    """All scores at once, by name; of several targets also those of each.

    The plain names are averages over all targets. Targets may have different units, in which an average ``rmse``,
    ``mae``, ``crps`` or ``interval_width`` says nothing: ``rmse[0]``, ``rmse[1]``, ... are those of each target, in its
    own unit.

    Args:
        predictive: What was predicted.
        y: What came true, ``(n,)`` or ``(n, n_outputs)``.
        level: Of the interval.
        names: Of the targets, to stand in place of their numbers.

    Example:
        >>> sorted(summary(Predictive.gaussian([0.0], [1.0], [0.5]), [0.0]))
        ['coverage', 'crps', 'interval_width', 'log_likelihood', 'mae', 'rmse']
        >>> two = Predictive.gaussian([[0.0, 0.0]], [[1.0, 100.0]], [[0.5, 50.0]])
        >>> scores = summary(two, [[0.5, 20.0]], names=["metres", "grams"])
        >>> scores["rmse[metres]"], scores["rmse[grams]"]
        (0.5, 20.0)
    """
    scores = _scores(predictive, y, level)
    outputs = predictive.shape[1] if len(predictive.shape) > 1 else 1
    labels = [str(label) for label in (range(outputs) if names is None else names)]
    if len(set(labels)) != outputs or len(labels) != outputs:
        raise OptionError(f"names={labels} does not fit {outputs} target{'s' if outputs > 1 else ''}: give one each.")
    if outputs > 1:
        values = _targets(predictive, y)
        for k, label in enumerate(labels):
            own = _scores(predictive.output(k), values[:, k], level)
            scores |= {f"{name}[{label}]": value for name, value in own.items()}
    return scores


def _scores(predictive: Predictive, y: ArrayLike, level: float) -> dict[str, float]:
    return {
        "log_likelihood": log_likelihood(predictive, y),
        "rmse": rmse(predictive, y),
        "mae": mae(predictive, y),
        "crps": crps(predictive, y),
        "coverage": coverage(predictive, y, level),
        "interval_width": interval_width(predictive, level),
    }
