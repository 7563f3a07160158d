"""Guided deep kernel learning: deep-kernel Gaussian processes whose uncertainty you can trust.

Example:
    >>> from sklearn.datasets import load_diabetes
    >>> import gdkl
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = gdkl.GDKLRegressor(n_iter=50, random_state=0).fit(X[:100], y[:100])
    >>> low, high = model.predict_distribution(X[100:]).interval(0.9)
"""

from gdkl import datasets, infinite, metrics, plots
from gdkl._version import __version__
from gdkl.estimators import (
    DKLClassifier,
    DKLRegressor,
    GDKLClassifier,
    GDKLRegressor,
    GPRegressor,
    NNClassifier,
    NNGPClassifier,
    NNGPRegressor,
    load,
)
from gdkl.numerics import GdklError
from gdkl.predictive import ClassPredictive, Predictive

__all__ = [
    "ClassPredictive",
    "DKLClassifier",
    "DKLRegressor",
    "GDKLClassifier",
    "GDKLRegressor",
    "GPRegressor",
    "GdklError",
    "NNClassifier",
    "NNGPClassifier",
    "NNGPRegressor",
    "Predictive",
    "__version__",
    "datasets",
    "infinite",
    "load",
    "metrics",
    "plots",
]
