"""Scores of predictions with their standard errors, and beside them what a model without columns would have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gdkl import metrics
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

#: Level of the intervals whose coverage is counted.
LEVEL = 0.9


@dataclass(frozen=True)
class Score:
    """A score.

    Attributes:
        name: As `gdkl.metrics` has it.
        label: For people.
        value: Over all rows.
        error: Standard error, from the spread over the rows; None where the score is no mean.
        baseline: The score of predicting the mean, or the shares of the classes, of these very rows.
        better: Which way is better.
    """

    name: str
    label: str
    value: float
    error: float | None
    baseline: float | None
    better: str


def scores_of(p: Predictive | ClassPredictive, y: Any) -> list[Score]:
    """Scores of a prediction against what came true.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> {score.name: round(score.value, 3) for score in scores_of(p, [0.0, 1.0])}["rmse"]
        0.707
    """
    return _of_classes(p, y) if isinstance(p, ClassPredictive) else _of_numbers(p, np.asarray(y, dtype=np.float64))


def as_json(scores: list[Score]) -> dict[str, dict[str, float | None]]:
    """Scores by name, for machines."""
    return {score.name: {"value": score.value, "error": score.error, "baseline": score.baseline} for score in scores}


def _of_numbers(p: Predictive, y: FloatArray) -> list[Score]:
    values = metrics.summary(p, y, LEVEL)
    squared = (p.mean - y) ** 2
    low, high = p.interval(LEVEL)
    spread = float(y.std())
    # The density of a normal distribution with the mean and variance of these rows.
    density = -0.5 * np.log(2 * np.pi * np.e * spread**2) if spread > 0 else None
    errors = {
        "log_likelihood": _error(p.log_prob(y)),
        # The derivative of a root is one over twice the root.
        "rmse": _error(squared) / (2 * values["rmse"]) if values["rmse"] > 0 else 0.0,
        "mae": _error(np.abs(p.mean - y)),
        "crps": _error(p.crps(y)),
        "coverage": _error(((low <= y) & (y <= high)).astype(np.float64)),
        "interval_width": _error(high - low),
    }
    baselines = {
        "log_likelihood": density,
        "rmse": spread,
        "mae": float(np.abs(y - np.median(y)).mean()),
        # Of the distribution of these rows: half the mean distance of two of them.
        "crps": _half_mean_distance(y),
    }
    labels = {
        "log_likelihood": ("log-likelihood", "higher is better"),
        "rmse": ("RMSE", "lower is better"),
        "mae": ("mean absolute error", "lower is better"),
        "crps": ("CRPS", "lower is better"),
        "coverage": (f"coverage of {LEVEL:.0%} intervals", f"{LEVEL:g} is right"),
        "interval_width": (f"width of {LEVEL:.0%} intervals", "lower is better"),
    }
    return [
        Score(name, label, values[name], errors[name], baselines.get(name), better)
        for name, (label, better) in labels.items()
    ]


def _of_classes(p: ClassPredictive, y: Any) -> list[Score]:
    values = metrics.class_summary(p, y)
    truth = (np.asarray(p.classes)[None] == np.asarray(y)[:, None]).astype(np.float64)
    shares = truth.mean(axis=0)
    seen = shares[shares > 0]
    errors = {
        "accuracy": _error(np.asarray(p.mode == np.asarray(y), dtype=np.float64)),
        "nll": _error(p.log_prob(y)),
        "brier": _error(((p.probs - truth) ** 2).sum(axis=1)),
    }
    baselines = {
        "accuracy": float(shares.max()),
        "nll": float(-(seen * np.log(seen)).sum()),
        "brier": float(1 - (shares**2).sum()),
    }
    labels = {
        "accuracy": ("accuracy", "higher is better"),
        "nll": ("negative log-likelihood", "lower is better"),
        "brier": ("Brier score", "lower is better"),
        "ece": ("expected calibration error", "lower is better"),
    }
    return [
        Score(name, label, values[name], errors.get(name), baselines.get(name), better)
        for name, (label, better) in labels.items()
    ]


def _error(values: FloatArray) -> float:
    """Standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _half_mean_distance(y: FloatArray) -> float:
    """½·E|Y − Y'| of two rows drawn from these, by sorting: Σ (2i − n − 1)·y_i / n²."""
    n = len(y)
    return float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(y)).sum() / n**2)
