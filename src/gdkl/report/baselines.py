"""Simple models that a report compares with, fitted to the same scaled columns and the same warp of the target."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from gdkl.estimators import GPRegressor
from gdkl.estimators.diagnostics import Evidence, constant_prediction
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

#: Rows that a Gaussian process is fitted to at most: its time grows with their cube. Classes take one per class.
GP_ROWS = {False: 1000, True: 300}

#: More columns than this have one lengthscale, and boosting of as many as the second number would take minutes.
_LENGTHSCALES, MOST_COLUMNS = 50, 500

#: Smallest probability: one of zero would make a log-likelihood infinite.
_SMALLEST = 1e-6

#: Name of the model that many columns are too many for.
BOOSTING = "histogram boosting"

#: Mean and variance at new rows, in units of the scaled target.
Moments = tuple[FloatArray, FloatArray]


def fit_baselines(e: Evidence) -> dict[str, Predictive | ClassPredictive]:
    """Predictions of one target by the mean, a linear model, a Gaussian process and histogram boosting, by name.

    Without the training rows there is the mean alone; without the training labels nothing.
    """
    found: dict[str, Predictive | ClassPredictive] = {}
    constant = constant_prediction(e)
    if constant is not None:
        found["class frequencies" if e.is_classes else "mean"] = constant
    if e.training is None or e.training.rows is None:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on convergence and constant columns
        fitted = _classifiers(e) if e.is_classes else _regressors(e)
    return found | fitted


def _some(rows: int, most: int) -> Any:
    """All rows, or as many as are allowed, drawn at random."""
    return slice(None) if rows <= most else np.random.default_rng(0).permutation(rows)[:most]


def _regressors(e: Evidence) -> dict[str, Predictive | ClassPredictive]:
    training, target, k = e.training, e.estimator.target_, e.output or 0
    if training is None or training.rows is None:
        return {}
    warp, mean, std = target.warps[k], target.mean[k], target.std[k]
    z = ((training.targets if warp is None else warp.forward(training.targets)) - mean) / std
    fits: Mapping[str, Callable[[FloatArray, FloatArray, FloatArray], Moments]] = {
        "linear model": _linear,
        "Gaussian process": _gaussian_process,
        BOOSTING: _boosting,
    }
    known, new = training.rows, e.rows

    def predicted(name: str) -> Predictive:
        centre, variance = (value[None] for value in fits[name](known, z, new))
        warps = None if warp is None else [warp]
        return Predictive(centre * std + mean, variance * std**2, np.zeros_like(variance), warps=warps)

    return _where_possible(fits, predicted, new.shape[1])


def _where_possible(
    names: Iterable[str], predicted: Callable[[str], Predictive | ClassPredictive], columns: int
) -> dict[str, Predictive | ClassPredictive]:
    """What can be fitted: a comparison that fails must not cost the report."""
    found: dict[str, Predictive | ClassPredictive] = {}
    for name in names:
        if name == BOOSTING and columns > MOST_COLUMNS:
            continue
        with suppress(ArithmeticError, ValueError):
            found[name] = predicted(name)
    return found


def _linear(rows: FloatArray, z: FloatArray, new: FloatArray) -> Moments:
    """Bayesian linear regression, hyperparameters by evidence."""
    from sklearn.linear_model import BayesianRidge  # noqa: PLC0415  (slow to import)

    mean, std = BayesianRidge().fit(rows, z).predict(new, return_std=True)
    return mean, std**2


def _gaussian_process(rows: FloatArray, z: FloatArray, new: FloatArray) -> Moments:
    """RBF kernel, one lengthscale per column where there are not many, by evidence."""
    some = _some(len(rows), GP_ROWS[False])
    p = GPRegressor(ard=rows.shape[1] <= _LENGTHSCALES).fit(rows[some], z[some]).predict_distribution(new)
    return p.mean, p.variance


def _boosting(rows: FloatArray, z: FloatArray, new: FloatArray) -> Moments:
    """As it comes; one variance for all rows, that of the residuals in five-fold cross-validation."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415
    from sklearn.model_selection import KFold, cross_val_predict  # noqa: PLC0415

    model = HistGradientBoostingRegressor(random_state=0)
    folds = KFold(min(5, len(rows)), shuffle=True, random_state=0)
    residuals = z - cross_val_predict(model, rows, z, cv=folds)
    mean = model.fit(rows, z).predict(new)
    return mean, np.full_like(mean, float(np.mean(residuals**2)))


def _classifiers(e: Evidence) -> dict[str, Predictive | ClassPredictive]:
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415
    from sklearn.gaussian_process import GaussianProcessClassifier  # noqa: PLC0415
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    training, p = e.training, e.p
    if training is None or training.rows is None or not isinstance(p, ClassPredictive):
        return {}
    # scikit-learn's own start, a lengthscale of one, connects nothing in many columns.
    kernel = ConstantKernel(1.0) * RBF(float(np.sqrt(e.rows.shape[1])))
    models = {
        "linear model": LogisticRegression(max_iter=2000),
        "Gaussian process": GaussianProcessClassifier(kernel, random_state=0),
        BOOSTING: HistGradientBoostingClassifier(random_state=0),
    }
    rows, labels, classes = training.rows, training.targets, p.classes

    def predicted(name: str) -> ClassPredictive:
        some = _some(len(labels), GP_ROWS[True] if name == "Gaussian process" else len(labels))
        fitted: Any = models[name].fit(rows[some], labels[some])
        probs = np.full((len(e), len(classes)), _SMALLEST)
        columns = np.searchsorted(classes, fitted.classes_)
        probs[:, columns] = np.clip(fitted.predict_proba(e.rows), _SMALLEST, None)
        zeros = np.zeros_like(probs)
        return ClassPredictive(np.log(probs), classes, zeros, zeros)

    return _where_possible(models, predicted, rows.shape[1])
