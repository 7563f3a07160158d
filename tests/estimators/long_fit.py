"""A short fit in a process of its own, to be killed: ``python long_fit.py FOLDER``."""

from __future__ import annotations

import sys

import numpy as np

from gdkl import GDKLRegressor, Preset
from gdkl.training import Checkpoint


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def fit(folder=None, callbacks=()):
    few = {"n_iter": 40, "inference": "sparse", "n_inducing": 10, "preset": Preset(batch_size=64), "random_state": 0}
    kept = [] if folder is None else [Checkpoint(folder, every_seconds=0)]
    return GDKLRegressor(**few, callbacks=[*kept, *callbacks]).fit(*table())


if __name__ == "__main__":
    fit(sys.argv[1], callbacks=[lambda report: print(report.step, flush=True)])
    print("done", flush=True)
