"""Models of other libraries that ours are measured beside, each with the same budget for choosing its settings.

A peer has four candidate settings, the first as the model comes. Each is fitted to four fifths of the training rows;
the one with the best log-likelihood of the other fifth is fitted to all. Targets of regression are standardised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from gdkl.numerics import DataError, OptionError, resolve_device
from gdkl.predictive import FloatArray, Predictive, class_index

#: Smallest standard deviation, in units of the target's, and smallest probability that are scored.
_SMALLEST_STD, _SMALLEST_PROB = 1e-3, float(np.finfo(np.float64).eps)

#: Levels of the quantiles of histogram boosting, and the same quantiles of a standard normal.
_LEVELS, _NORMAL = (0.05, 0.25, 0.5, 0.75, 0.95), np.array([-1.644854, -0.674490, 0.0, 0.674490, 1.644854])


#: A function of rows, targets, a seed and settings; and the candidate settings. That of a regressor returns a function
#: from rows to means and standard deviations, that of a classifier a scikit-learn classifier.
Peer: TypeAlias = tuple[Callable[..., Any], Sequence[Mapping[str, Any]]]


def _botorch(X: Any, y: Any, seed: int | None, kernel: str = "rbf", noise: str = "lognormal") -> Any:
    """SingleTaskGP with its ARD kernel and priors, on a GPU if there is one; inputs in the unit cube, as advised."""
    botorch, parts = import_module("botorch"), import_module("botorch.models.utils.gpytorch_modules")
    torch.manual_seed(seed or 0)
    read = partial(torch.as_tensor, dtype=torch.float64, device=resolve_device("auto"))
    rows, targets = read(np.asarray(X)), read(np.asarray(y))
    columns = rows.shape[1]
    model = botorch.models.SingleTaskGP(
        rows,
        targets[:, None],
        likelihood=getattr(parts, f"get_gaussian_likelihood_with_{noise}_prior")(),
        covar_module=parts.get_covar_module_with_dim_scaled_prior(columns, use_rbf_kernel=kernel == "rbf"),
        input_transform=botorch.models.transforms.Normalize(columns),
    ).to(rows)
    botorch.fit_gpytorch_mll(import_module("gpytorch.mlls").ExactMarginalLogLikelihood(model.likelihood, model))

    def predict(new: Any) -> Any:
        with torch.no_grad():
            found = model.posterior(read(np.asarray(new)), observation_noise=True)
            return found.mean[:, 0].cpu().numpy(), found.variance[:, 0].sqrt().cpu().numpy()

    return predict


def _gp_kernel(kernel: str, lengthscale: Any) -> Any:
    base = RBF(lengthscale) if kernel == "rbf" else Matern(lengthscale, nu=float(kernel.removeprefix("matern")))
    return ConstantKernel(1.0) * base


def _gpr(X: Any, y: Any, seed: int | None, kernel: str = "rbf") -> Any:
    # scikit-learn's own start, a lengthscale of one, connects nothing in many columns.
    whole = _gp_kernel(kernel, np.full(X.shape[1], np.sqrt(X.shape[1]))) + WhiteKernel(0.1)
    gp = GaussianProcessRegressor(whole, normalize_y=True, random_state=seed)
    model = make_pipeline(StandardScaler(), gp).fit(X, y)
    return lambda new: model.predict(new, return_std=True)


def _gpc(X: Any, y: Any, seed: int | None, kernel: str = "rbf") -> Any:
    gp = GaussianProcessClassifier(_gp_kernel(kernel, float(np.sqrt(X.shape[1]))), random_state=seed)
    return make_pipeline(StandardScaler(), gp).fit(X, y)


def _logistic(X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, **settings)).fit(X, y)


def _text_filled(text: list[str], X: Any) -> Any:
    frame = pd.DataFrame(X).copy()
    frame[text] = frame[text].astype(object).fillna("missing")
    return frame


def _catboost_model(name: str, X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    """CatBoost with the text columns as its own categories, on as many threads as torch has."""
    text = list(pd.DataFrame(X).select_dtypes(exclude=["number", "bool"]).columns)
    model = getattr(import_module("catboost"), name)(
        cat_features=text,
        random_seed=seed,
        thread_count=torch.get_num_threads(),
        verbose=False,
        allow_writing_files=False,
        **settings,
    )
    return make_pipeline(FunctionTransformer(partial(_text_filled, text)), model).fit(X, y)


def _catboost(X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    model = _catboost_model("CatBoostRegressor", X, y, seed, loss_function="RMSEWithUncertainty", **settings)

    def predict(new: Any) -> Any:
        mean, variance = model.predict(new, prediction_type="RMSEWithUncertainty").T
        return mean, np.sqrt(variance)

    return predict


def _ngboost(X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    model = import_module("ngboost").NGBRegressor(verbose=False, random_state=seed, **settings).fit(X, y)

    def predict(new: Any) -> Any:
        found = model.pred_dist(new).params
        return found["loc"], found["scale"]

    return predict


def _boosting(X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    """A model per level; the Gaussian whose quantiles are nearest to theirs by least squares."""
    models = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=seed, **settings).fit(X, y)
        for level in _LEVELS
    ]

    def predict(new: Any) -> Any:
        # q = μ + σ·z, and the normal quantiles z sum to zero.
        quantiles = np.stack([model.predict(new) for model in models])
        return quantiles.mean(axis=0), _NORMAL @ quantiles / (_NORMAL @ _NORMAL)

    return predict


def _boosting_classes(X: Any, y: Any, seed: int | None, **settings: Any) -> Any:
    return HistGradientBoostingClassifier(random_state=seed, **settings).fit(X, y)


_NOISES = ({}, {"kernel": "matern"}, {"noise": "gamma"}, {"kernel": "matern", "noise": "gamma"})
_KERNELS = ({}, {"kernel": "matern2.5"}, {"kernel": "matern1.5"}, {"kernel": "matern0.5"})
_TREES = ({}, {"iterations": 300, "depth": 4}, {"iterations": 100, "depth": 4}, {"iterations": 100, "depth": 2})
_STAGES = ({}, {"n_estimators": 200}, {"n_estimators": 100}, {"n_estimators": 200, "minibatch_frac": 0.5})
_HISTOGRAMS = ({}, {"max_iter": 30}, {"max_leaf_nodes": 8}, {"max_iter": 30, "max_leaf_nodes": 8})

#: Peers of regression and of classification, with their candidate settings.
REGRESSORS: Mapping[str, Peer] = {
    "botorch": (_botorch, _NOISES),
    "gpr": (_gpr, _KERNELS),
    "catboost": (_catboost, _TREES),
    "ngboost": (_ngboost, _STAGES),
    "boosting": (_boosting, _HISTOGRAMS),
}
CLASSIFIERS: Mapping[str, Peer] = {
    "logistic": (_logistic, ({}, {"C": 0.1}, {"C": 0.01}, {"C": 10.0})),
    "gpc": (_gpc, _KERNELS),
    "catboost": (partial(_catboost_model, "CatBoostClassifier"), _TREES),
    "boosting": (_boosting_classes, _HISTOGRAMS),
}


class PeerRegressor(BaseEstimator):
    """A regressor of another library; ``tuned`` says whether its settings are chosen, or as it comes."""

    peers: Mapping[str, Peer] = REGRESSORS

    def __init__(self, peer: str = "gpr", tuned: bool = True, random_state: int | None = None):
        self.peer = peer
        self.tuned = tuned
        self.random_state = random_state

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Choose the settings, and fit the model to all rows."""
        targets = self._targets(np.asarray(y))
        fit, candidates = self.peers[self.peer]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other libraries, on convergence and constant columns
            try:
                self.chosen_ = dict(self._choose(X, targets) if self.tuned else candidates[0])
                self.model_ = fit(X, targets, self.random_state, **self.chosen_)
            except ModuleNotFoundError as error:
                raise OptionError(f"{error.name} is not installed: pip install 'gdkl[benchmark]'.") from error
        return self

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        self.mean_, self.std_ = float(np.mean(y)), float(np.std(y)) or 1.0
        return (y - self.mean_) / self.std_

    def _choose(self, X: Any, y: NDArray[Any]) -> Mapping[str, Any]:
        """The candidate with the best log-likelihood of a held-out fifth, in which each class has its share."""
        fit, candidates = self.peers[self.peer]
        order = np.random.default_rng(self.random_state).permutation(len(y))
        order = order[np.argsort(y[order], kind="stable")] if y.dtype.kind == "i" else order
        held = np.isin(np.arange(len(y)), order[::5])
        scores: list[float] = []
        for candidate in candidates:
            try:
                self.model_ = fit(X[~held], y[~held], self.random_state, **candidate)
                scores.append(self._score(X[held], y[held]))
            except ModuleNotFoundError:
                raise
            except Exception:  # a candidate that cannot be fitted, whatever its library raises, is not chosen
                scores.append(-np.inf)
        return candidates[int(np.nan_to_num(scores, nan=-np.inf).argmax())]

    def _score(self, X: Any, y: NDArray[Any]) -> float:
        return float(self._gaussian(X, 0.0, 1.0).log_prob(y).mean())

    def _gaussian(self, X: Any, shift: float, scale: float) -> Predictive:
        mean, std = self.model_(X)
        variance = (scale * np.maximum(std, _SMALLEST_STD)) ** 2
        return Predictive.gaussian(shift + scale * mean, variance, np.zeros_like(variance))

    def predict_distribution(self, X: Any) -> Predictive:
        """Gaussians in the target's own units."""
        return self._gaussian(X, self.mean_, self.std_)


class PeerClassifier(PeerRegressor):
    """A classifier of another library."""

    peers = CLASSIFIERS

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise DataError("y has a single class: a classifier needs two.")
        return class_index(self.classes_, y).astype(np.int64)

    def _score(self, X: Any, y: NDArray[Any]) -> float:
        return float(np.log(self.predict_proba(X)[np.arange(len(y)), y]).mean())

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities ``(m, classes)``, none of them zero."""
        found = self.model_.predict_proba(X)
        probs = np.full((len(found), len(self.classes_)), _SMALLEST_PROB)
        probs[:, self.model_.classes_] = found.clip(_SMALLEST_PROB)
        return probs / probs.sum(axis=1, keepdims=True)
