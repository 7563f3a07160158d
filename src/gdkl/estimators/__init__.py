"""Estimators: the scikit-learn face of every method."""

from gdkl.estimators.classifiers import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.loading import load
from gdkl.estimators.presets import Preset
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.estimators.together import fit_together

__all__ = [
    "DKLClassifier",
    "DKLRegressor",
    "GDKLClassifier",
    "GDKLRegressor",
    "GPRegressor",
    "NNClassifier",
    "NNGPClassifier",
    "NNGPRegressor",
    "Preset",
    "fit_together",
    "load",
]
