"""The paper's one-dimensional example (Figure 1) as an experiment: who is honest where half of the data has a gap?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gdkl import datasets
from gdkl.experiments.data import Part, held_out
from gdkl.experiments.spec import Cell, Column, Method, PaperTable, Quick, Spec
from gdkl.plots import GAP, in_region

_PAPER = {"base": "paper", "n_iter": 2000}


def halves(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """D1 without its gap to learn from; D2 is scored, and the points of D2 in the gap once more, as "gap"."""
    seed = int(cell.split or 0)
    X, y, *_ = datasets.toy(seed=seed)
    # As in `gdkl.plots.toy_example`: a stream of its own, for the table was drawn from the plain seed.
    first, second = np.split(np.random.default_rng([seed, 1]).permutation(len(y)), 2)
    train, test = held_out(first[~in_region(X[first, 0], GAP)], second, validation)
    gap = test[in_region(X[test, 0], GAP)]
    return Part(X[train], y[train], X[test], y[test], others={"gap": (X[gap], y[gap])})


TOY = Spec(
    "toy",
    "The paper's: one dimension, 400 points less those of a gap; 400 others are scored, five draws",
    halves,
    ("toy",),
    {
        "gdkl": Method("the guided objective", "GDKLRegressor", preset=_PAPER),
        "nngp": Method("the guide alone", "NNGPRegressor"),
        "gp_rbf": Method("RBF Gaussian process, its evidence maximised to convergence", "GPRegressor"),
        "dkl": Method("deep kernel by evidence", "DKLRegressor", preset=_PAPER),
    },
    (
        Column("LL", "log_likelihood", digits=2),
        Column("RMSE", "rmse", digits=2),
        Column("90 % coverage", "coverage", digits=2),
        Column("LL in the gap", "log_likelihood", "gap", digits=2),
        Column("90 % coverage in the gap", "coverage", "gap", digits=2),
    ),
    seeds=5,
    paper=PaperTable("Figure 1"),
    quick=Quick("2 of 5 draws, 500 steps in place of 2000", seeds=2, changes=("preset.n_iter=500",)),
)
