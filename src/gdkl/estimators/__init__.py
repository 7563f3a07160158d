"""Estimators: the scikit-learn face of every method."""

from gdkl.estimators.loading import load
from gdkl.estimators.regressors import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor

__all__ = ["DKLRegressor", "GDKLRegressor", "GPRegressor", "NNGPRegressor", "load"]
