"""A short fit in a process of its own, to be killed: ``python long_fit.py FOLDER``."""

from __future__ import annotations

import sys

import numpy as np

from gdkl import GDKLRegressor
from gdkl.estimators import resuming


def table(n=1200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def fit(folder=None, **options):
    few = {"n_iter": 40, "inference": "sparse", "n_inducing": 10, "batch_size": 64, "random_state": 0}
    return GDKLRegressor(**{**few, **options}, checkpoint_dir=folder).fit(*table())


if __name__ == "__main__":
    resuming.EVERY_SECONDS = 0.0
    fit(sys.argv[1], callbacks=[lambda report: print(report.step, flush=True)])
    print("done", flush=True)
