"""Guided deep kernel learning: deep-kernel Gaussian processes whose uncertainty you can trust.

Example:
    >>> from sklearn.datasets import load_diabetes
    >>> import gdkl
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = gdkl.GDKLRegressor(n_iter=50, random_state=0).fit(X[:100], y[:100])
    >>> low, high = model.predict_distribution(X[100:]).interval(0.9)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gdkl._version import __version__

if TYPE_CHECKING:
    from gdkl import datasets, infinite, metrics, plots, report, training
    from gdkl.estimators import (
        DKLClassifier,
        DKLRegressor,
        DLVKLClassifier,
        DLVKLRegressor,
        DUEClassifier,
        DUERegressor,
        GDKLClassifier,
        GDKLRegressor,
        GPRegressor,
        NNClassifier,
        NNGPClassifier,
        NNGPRegressor,
        NNRegressor,
        Preset,
        load,
    )
    from gdkl.numerics import GdklError
    from gdkl.predictive import ClassPredictive, Predictive

#: Where each public name lives; it is imported when it is first used, so that ``import gdkl`` costs next to nothing.
_HOMES = {
    "gdkl.estimators": (
        "DKLClassifier",
        "DKLRegressor",
        "DLVKLClassifier",
        "DLVKLRegressor",
        "DUEClassifier",
        "DUERegressor",
        "GDKLClassifier",
        "GDKLRegressor",
        "GPRegressor",
        "NNClassifier",
        "NNGPClassifier",
        "NNGPRegressor",
        "NNRegressor",
        "Preset",
        "load",
    ),
    "gdkl.numerics": ("GdklError",),
    "gdkl.predictive": ("ClassPredictive", "Predictive"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("datasets", "estimators", "infinite", "metrics", "plots", "report", "training")

__all__ = [
    "ClassPredictive",
    "DKLClassifier",
    "DKLRegressor",
    "DLVKLClassifier",
    "DLVKLRegressor",
    "DUEClassifier",
    "DUERegressor",
    "GDKLClassifier",
    "GDKLRegressor",
    "GPRegressor",
    "GdklError",
    "NNClassifier",
    "NNGPClassifier",
    "NNGPRegressor",
    "NNRegressor",
    "Predictive",
    "Preset",
    "__version__",
    "datasets",
    "infinite",
    "load",
    "metrics",
    "plots",
    "report",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if name in _ROOMS:
        return import_module(f"gdkl.{name}")
    raise AttributeError(f"module 'gdkl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
