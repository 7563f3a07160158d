"""The demo's data, its four models and their scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdkl import metrics, plots
from gdkl.datasets import load, published_split, toy
from gdkl.estimators import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.numerics import limit_threads
from gdkl.predictive import FloatArray, Predictive

#: Training points of the one-dimensional problem: fewer than the paper's 800, for time.
TOY_TRAIN_ROWS = 200
TOY_TEST_ROWS = 400

#: Level of the intervals whose coverage is reported.
LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Problem:
    """Data to learn from and data to be scored on, with a name and a sentence on what it is."""

    name: str
    description: str
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray


@dataclass(frozen=True, eq=False)
class Result:
    """A fitted model, its prediction for the test points, the scores of both parts, and the time to fit."""

    model: Any
    predictive: Predictive
    train: Mapping[str, float]
    test: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, eq=False)
class Study:
    """All models on one problem."""

    problem: Problem
    results: Mapping[str, Result]

    @property
    def best(self) -> str:
        """Name of the model with the highest test log-likelihood."""
        return max(self.results, key=lambda name: self.results[name].test["log_likelihood"])


def toy_problem(seed: int) -> Problem:
    """The paper's one-dimensional target: no training point in the gap, test points everywhere."""
    table = toy(2 * TOY_TRAIN_ROWS, seed=seed, noise_variance=plots.NOISE_VARIANCE)
    outside = np.flatnonzero(~plots.in_region(table.X[:, 0], plots.GAP))[:TOY_TRAIN_ROWS]
    test = toy(TOY_TEST_ROWS, seed=seed + 1, noise_variance=plots.NOISE_VARIANCE)
    low, high = plots.GAP
    rows = f"{len(outside)} training points outside [{low:g}, {high:g}] and {TOY_TEST_ROWS} test points everywhere"
    description = f"the paper's one-dimensional target, {rows}"
    return Problem("toy", description, table.X[outside], table.y[outside], test.X, test.y)


def diabetes_problem(seed: int) -> Problem:
    """scikit-learn's diabetes table under a random split, nine tenths for training."""
    table = load("diabetes")
    train, test = published_split(len(table.y), seed)
    description = (
        f"scikit-learn's table of {table.X.shape[1]} measurements and the disease's progress, {len(train)} rows for "
        f"training and {len(test)} for the test"
    )
    return Problem("diabetes", description, table.X[train], table.y[train], table.X[test], table.y[test])


def run_study(problem: Problem, steps: int, seed: int, say: Callable[[str], None]) -> Study:
    """Fit and score the four regressors, with their defaults but for DKL's steps; GDKL has a seventh of them."""
    models: dict[str, Any] = {
        "GDKL": GDKLRegressor(n_iter=max(1, steps // 7), random_state=seed, verbose=1),
        "DKL": DKLRegressor(n_iter=steps, random_state=seed, verbose=1),
        "NNGP": NNGPRegressor(),
        "GP": GPRegressor(),
    }
    results: dict[str, Result] = {}
    for name, model in models.items():
        started = time.perf_counter()
        # On few hundred rows threads gain little, and with one the scores do not depend on the number of cores.
        with limit_threads(1):
            model.fit(problem.X, problem.y)
        seconds = time.perf_counter() - started
        test = model.predict_distribution(problem.X_test)
        train_scores = metrics.summary(model.predict_distribution(problem.X), problem.y, LEVEL)
        results[name] = Result(model, test, train_scores, metrics.summary(test, problem.y_test, LEVEL), seconds)
        say(f"{problem.name}: {name} fitted in {seconds:.1f} s")
    return Study(problem, results)
