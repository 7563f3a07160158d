"""Estimators: the scikit-learn face of every method."""

from gdkl.estimators.classifiers import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.loading import load
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor

__all__ = [
    "DKLClassifier",
    "DKLRegressor",
    "GDKLClassifier",
    "GDKLRegressor",
    "GPRegressor",
    "NNClassifier",
    "NNGPClassifier",
    "NNGPRegressor",
    "load",
]
