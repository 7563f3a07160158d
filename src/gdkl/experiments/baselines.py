"""Models of scikit-learn that GDKL is compared with, with the predictive distributions that some of them lack."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gdkl.predictive import FloatArray, Predictive


class LinearGaussian(RegressorMixin, BaseEstimator):
    """Ordinary least squares; the noise is that of its residuals."""

    def fit(self, X: FloatArray, y: FloatArray) -> Self:
        """Fit the model."""
        self.model_ = LinearRegression().fit(X, y)
        self.variance_ = float(np.mean((y - self.model_.predict(X)) ** 2))
        return self

    def predict(self, X: FloatArray) -> FloatArray:
        """Means."""
        return self.model_.predict(X)

    def predict_distribution(self, X: FloatArray) -> Predictive:
        """Gaussians of one width."""
        mean = self.predict(X)
        return Predictive.gaussian(mean, np.full_like(mean, self.variance_), np.zeros_like(mean))


class BoostingGaussian(LinearGaussian):
    """Histogram gradient boosting as it comes; the noise is that of a tenth of the rows, held out of a first fit."""

    def __init__(self, random_state: int | None = None):
        self.random_state = random_state

    def fit(self, X: FloatArray, y: FloatArray) -> Self:
        """Fit the model to nine tenths of the rows for the noise, then to all."""
        held_out: NDArray[np.bool_] = np.random.default_rng(self.random_state).random(len(y)) < 0.1
        model: Any = HistGradientBoostingRegressor(random_state=self.random_state)
        model.fit(X[~held_out], y[~held_out])
        self.variance_ = float(np.mean((y[held_out] - model.predict(X[held_out])) ** 2))
        self.model_ = model.fit(X, y)
        return self


class LaplaceGPClassifier(ClassifierMixin, BaseEstimator):
    """scikit-learn's Gaussian process classifier (Laplace, one against the rest), RBF by evidence."""

    def __init__(self, random_state: int | None = None):
        self.random_state = random_state

    def fit(self, X: FloatArray, y: NDArray[Any]) -> Self:
        """Fit the model to standardised columns."""
        # scikit-learn's own start, a lengthscale of one, connects nothing in many columns.
        kernel = ConstantKernel(1.0) * RBF(float(np.sqrt(X.shape[1])))
        model = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=self.random_state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the bounds of an RBF may bind
            self.model_: Any = model.fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Class probabilities."""
        return self.model_.predict_proba(X)

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """The most probable class of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
