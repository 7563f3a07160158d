"""Estimators: the scikit-learn face of every method."""

from gdkl.estimators.classifier_baselines import DKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.gdkl_classifier import GDKLClassifier
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
