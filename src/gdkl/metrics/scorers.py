"""Proper scores for scikit-learn's searches and cross-validation: ``GridSearchCV(..., scoring=crps_scorer)``."""

from __future__ import annotations

from typing import Any

from gdkl.numerics import OptionError


def log_likelihood_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Mean log density of targets, or log probability of labels, in the target's own units; more is better.

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import cross_val_score
        >>> from gdkl import NNGPRegressor
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> scores = cross_val_score(NNGPRegressor(), X[::-1], np.sin(X[:, 0]), scoring=log_likelihood_scorer)
        >>> scores.shape
        (5,)
    """
    return float(_distribution(estimator, X).log_prob(y).mean())


def crps_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Minus the mean continuous ranked probability score, in the target's units: more is better, as in scikit-learn."""
    p = _distribution(estimator, X)
    if not hasattr(p, "crps"):
        raise OptionError("crps_scorer is for regressors: use log_likelihood_scorer for a classifier.")
    return -float(p.crps(y).mean())


def _distribution(estimator: Any, X: Any) -> Any:
    """What an estimator predicts, also the last one of a pipeline or the best of a search."""
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if hasattr(estimator, "steps"):
        before = estimator[:-1]
        return _distribution(estimator[-1], before.transform(X) if len(before) else X)
    if hasattr(estimator, "best_estimator_"):
        return _distribution(estimator.best_estimator_, X)
    raise OptionError(
        f"{type(estimator).__name__} has no predict_distribution: score an estimator of gdkl, or a pipeline that ends "
        "in one."
    )
