"""The paper's regression on few rows of tables with many columns, and stand-ins for two that cannot be downloaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl import datasets
from gdkl.experiments.data import Part
from gdkl.experiments.draws import SIZES
from gdkl.experiments.spec import Cell, Column, Method, PaperTable, Quick, Spec
from gdkl.numerics import OptionError

#: Counts over four orders of magnitude: log(1 + y) is what is predicted. The paper's errors on Buzz, of about one, are
#: of this scale.
LOGARITHMIC = ("blog", "buzz")

_PAPER = {"base": "paper"}


@lru_cache(maxsize=1)
def load_rows(name: str, data_dir: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """A table, kept in memory: reading the text of the largest takes seconds, and the cells of a table share it."""
    X, y, *_ = datasets.load(name, data_dir)
    return X, np.log1p(y) if name in LOGARITHMIC else y


def few_rows(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """The first rows of a random nine tenths; the other tenth is scored, or rows behind the first for validation."""
    if not isinstance(cell.size, int) or cell.size < 2:
        raise OptionError(f"size={cell.size!r} must be a number of training rows of at least 2.")
    X, y = load_rows(cell.dataset, data_dir)
    train, test = datasets.published_split(len(y), int(cell.split or 0))
    if cell.size + validation > len(train):
        raise OptionError(f"{cell.dataset} has {len(train)} rows to draw from, and {cell.size + validation} are asked.")
    scored = train[cell.size : cell.size + validation] if validation else test
    train = train[: cell.size]
    return Part(X[train], y[train], X[scored], y[scored])


HIGHDIM = Spec(
    "highdim",
    "The paper's: regression on 50 to 800 rows with 18 to 384 columns, ten random subsets, and four stand-ins",
    few_rows,
    ("gas", "blog", "pol", "elevators", "ctslice", "buzz"),
    {
        "gdkl": Method("the guided objective", "GDKLRegressor", {"beta": 1.2}, _PAPER, together=True),
        "nngp": Method("the guide alone", "NNGPRegressor", together=True),
        "gp_rbf": Method("RBF Gaussian process, its evidence maximised to convergence", "GPRegressor"),
        "dkl": Method("deep kernel by evidence", "DKLRegressor", preset=_PAPER, together=True),
        "due": Method("deep kernel, spectral normalisation", "DUERegressor", preset=_PAPER, together=True),
        "dlvkl": Method("deep kernel, stochastic encoder", "DLVKLRegressor", preset=_PAPER),
        "nn": Method("the network with a variance head", "NNRegressor", preset=_PAPER, together=True),
    },
    (
        Column("LL", "log_likelihood", digits=2, paper="ll"),
        Column("RMSE", "rmse", digits=2, paper="rmse"),
        Column("90 % coverage", "coverage", digits=2),
    ),
    sizes=SIZES,
    seeds=10,
    model_seed=0,
    compared="gdkl",
    paper=PaperTable("Figure 3, Tables 8 to 12", {"test": ("app_tab:fig3_{size}",)}, cell="{dataset}.n{size}.{score}"),
    quick=Quick(
        "2 of 10 subsets, 50 and 200 rows, 300 steps in place of 7000 or 8000",
        seeds=2,
        sizes=(50, 200),
        changes=("preset.n_iter=300",),
    ),
)
