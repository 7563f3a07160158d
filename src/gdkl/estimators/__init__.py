"""Estimators: the scikit-learn face of every method."""

from gdkl.estimators.baselines import DLVKLClassifier, DLVKLRegressor, DUEClassifier, DUERegressor, NNRegressor
from gdkl.estimators.classifiers import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.diagnostics import Diagnosis, Finding, Severity
from gdkl.estimators.loading import load
from gdkl.estimators.presets import Preset
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.estimators.together import fit_together

__all__ = [
    "DKLClassifier",
    "DKLRegressor",
    "DLVKLClassifier",
    "DLVKLRegressor",
    "DUEClassifier",
    "DUERegressor",
    "Diagnosis",
    "Finding",
    "GDKLClassifier",
    "GDKLRegressor",
    "GPRegressor",
    "NNClassifier",
    "NNGPClassifier",
    "NNGPRegressor",
    "NNRegressor",
    "Preset",
    "Severity",
    "fit_together",
    "load",
]
