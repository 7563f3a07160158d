"""A small experiment with a fast estimator, for the tests of the runner."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator

from gdkl.experiments import Cell, Column, Method, PaperTable, Spec
from gdkl.experiments.data import Part
from gdkl.predictive import Predictive


class Constant(BaseEstimator):
    """Predicts the mean of the targets; leaves a line in a log file for each fit, and may take its time."""

    def __init__(self, shift=0.0, preset=None, n_iter=None, random_state=None, device="auto"):
        self.shift = shift
        self.preset = preset
        self.n_iter = n_iter
        self.random_state = random_state
        self.device = device

    def fit(self, X, y):
        if "GDKL_TEST_LOG" in os.environ:
            with Path(os.environ["GDKL_TEST_LOG"]).open("a") as log:
                log.write(f"{self.shift} {len(y)} {self.random_state}\n")
        time.sleep(float(os.environ.get("GDKL_TEST_SLEEP", "0")))
        self.mean_ = float(np.mean(y)) + self.shift
        self.n_iter_ = self.n_iter
        return self

    def predict_distribution(self, X):
        mean = np.full(len(X), self.mean_)
        return Predictive.gaussian(mean, np.ones(len(X)), np.zeros(len(X)))


class Shares(BaseEstimator):
    """Class probabilities: the shares of the labels, blurred by the seed."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        rng = np.random.default_rng(self.random_state)
        noisy = self.shares_ * rng.uniform(0.5, 1.5, size=(len(X), len(self.classes_)))
        return noisy / noisy.sum(axis=1, keepdims=True)


def line_data(cell: Cell, data_dir, validation: int) -> Part:
    rng = np.random.default_rng(cell.split if isinstance(cell.split, int) else 0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + (1.0 if cell.dataset == "steep" else 0.0)
    return Part(X[:30], y[:30], X[30:], y[30:])


def class_data(cell: Cell, data_dir, validation: int) -> Part:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    if validation:
        return Part(X[validation:40], y[validation:40], X[:validation], y[:validation])
    return Part(X[:40], y[:40], X[40:], y[40:])


HERE = "experiments_helpers"

SMALL = Spec(
    "small",
    "A small experiment",
    line_data,
    ("flat", "steep"),
    {
        "mean": Method("the mean", f"{HERE}:Constant"),
        "off": Method("beside the mean", f"{HERE}:Constant", {"shift": 1.0}, {"n_iter": 5}),
    },
    (Column("LL", "log_likelihood", digits=2, paper="ll"), Column("RMSE", "rmse", digits=2)),
    seeds=2,
    parts=("test", "train"),
    compared="mean",
    paper=PaperTable("Table 7", {"test": ("app_tab:fig2_test",)}, cell="boston.{score}"),
)

CLASSES = Spec(
    "tiny-classes",
    "Three classes",
    class_data,
    ("made",),
    {"shares": Method("the shares", f"{HERE}:Shares")},
    (Column("NLL", "log_likelihood", factor=-1), Column("accuracy", "accuracy", factor=100, digits=1)),
    draws=("paper",),
    seeds=3,
    ensembles=True,
)


def cells(spec=SMALL, datasets=None, methods=None, seeds=None, changes=None, **more):
    """Cells of a spec; ``changes`` replaces settings of all methods."""
    chosen = methods or list(spec.methods)
    settings = {name: spec.settings(name, changes or {}, more.pop("validation", 0)) for name in chosen}
    return list(spec.cells(datasets or spec.datasets, settings, seeds=seeds, **more))
