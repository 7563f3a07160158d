"""Regression on tables too large for exact inference: GDKL with inducing points beside what it is compared with.

Not an experiment of the paper, which has inducing points for images alone. Three 90/10 splits of all rows. Settings
were chosen on a tenth of the training rows; but the number of epochs was settled after test scores of splits 0 to 2 had
been seen, so those that are reported begin with split 3.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from gdkl import datasets, metrics
from gdkl.estimators import DKLRegressor, GDKLRegressor
from gdkl.numerics import GdklWarning, NumericsError, OptionError
from gdkl.paper.kept import first_splits, kept_line, made_before
from gdkl.paper.results import versions, write_result
from gdkl.predictive import FloatArray, Predictive

DATASETS = ("kin8nm", "power", "protein")

#: Part of the training rows by which a model without uncertainty of its own gets one.
_FOR_NOISE = 0.1


class Method(StrEnum):
    """What `gdkl reproduce large` can run."""

    GDKL = "gdkl"
    """GDKL with inducing points."""
    DKL = "dkl"
    """Deep kernel with inducing points, by the evidence bound."""
    DKL_HELD_OUT = "dkl_held_out"
    """The same, its noise that of rows held out, as GDKL has it: what is left between the two is not the noise."""
    GDKL_EXACT = "gdkl_exact"
    """Exact GDKL, on as many rows as the protocol says."""
    LINEAR = "linear"
    """Ordinary least squares; the noise is that of its residuals."""
    BOOSTING = "boosting"
    """scikit-learn's histogram gradient boosting as it comes; the noise is that of rows held out."""


@dataclass(frozen=True)
class Protocol:
    """Settings of a run.

    Attributes:
        seeds: Number of splits, cut as the published code cuts them; a split's number also seeds the model.
        first_seed: Number of the first.
        epochs: Times that the two sparse methods see every row.
        batch_size: Rows a step.
        n_inducing: Inducing points.
        beta: GDKL's own option, of which a hundredth counts with inducing points.
        learning_rate: Adam's highest. It climbs for a twentieth of the steps; then GDKL's falls along a cosine, and
            DKL's tenfold at 60 % and 80 % of the steps, as each estimator has it.
        weight_decay: On the network's weights, of both.
        exact_rows: Rows that exact GDKL is trained on at most, drawn at random.
        exact_steps: Its gradient steps.
    """

    seeds: int = 3
    first_seed: int = 3
    epochs: int = 30
    batch_size: int = 512
    n_inducing: int = 128
    beta: float = 1.0
    learning_rate: float = 1e-2
    weight_decay: float = 1e-4
    exact_rows: int = 3000
    exact_steps: int = 1000

    def __post_init__(self) -> None:
        for name in ("seeds", "epochs", "exact_rows", "exact_steps"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)!r} must be at least 1.")


def run(
    name: str,
    method: Method,
    protocol: Protocol,
    path: Path,
    *,
    data_dir: Path | None = None,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run one method on all splits of one dataset, going on after the splits that the result file has already.

    Args:
        name: Of the dataset.
        method: What is run.
        protocol: Settings.
        path: The result file; written after each split.
        data_dir: Where the dataset is.
        device: Where to compute.
        say: Told of each split, and of those that are there already.

    Returns:
        Settings, versions, and the scores of the splits that were asked for; the result file may have more.
    """
    if name not in DATASETS:
        raise OptionError(f"dataset {name!r} is not part of this experiment: use {', '.join(DATASETS)}.")
    found = made_before(path, name, method, asdict(protocol))
    if found is not None and len(found["splits"]) >= protocol.seeds:
        say(f"{name} {method}: {kept_line(path, found, protocol.seeds)}")
        return first_splits(found, protocol.seeds)
    splits = list(found["splits"]) if found is not None else []
    if splits:
        say(f"{name} {method}: {len(splits)} of {protocol.seeds} splits kept from {path}")
    X, y, *_ = datasets.load(name, data_dir=data_dir)
    result: dict[str, Any] = {
        "experiment": "large",
        "dataset": name,
        "method": method.value,
        "protocol": asdict(protocol),
        "versions": versions(device),
        "splits": splits,
    }
    for seed in range(protocol.first_seed + len(splits), protocol.first_seed + protocol.seeds):
        train, test = datasets.published_split(len(X), seed)
        every_row = len(train)
        if method is Method.GDKL_EXACT:
            # The published order is random already.
            train = train[: protocol.exact_rows]
            say(f"{name} {method} split {seed}: trained on {len(train)} of {every_row} rows")
        model = _Model(_make(method, protocol, seed, len(train), device), seed)
        started = time.perf_counter()
        model.fit(X[train], y[train])
        fitted = time.perf_counter()
        scores = metrics.summary(model.predict(X[test]), y[test])
        predicted = time.perf_counter()
        splits.append(
            {
                "seed": seed,
                "train_rows": len(train),
                "of_rows": every_row,
                "fit_seconds": round(fitted - started, 2),
                "predict_seconds": round(predicted - fitted, 3),
                "test": scores,
            }
        )
        write_result(path, result)
        say(
            f"{name} {method} split {seed}: LL {scores['log_likelihood']:.3f}, RMSE {scores['rmse']:.3f}, coverage "
            f"{scores['coverage']:.3f}, {fitted - started:.0f} s"
        )
    return result


def _make(method: Method, protocol: Protocol, seed: int, rows: int, device: torch.device) -> BaseEstimator:
    """A fresh model."""
    place: dict[str, Any] = {"random_state": seed, "device": str(device)}
    sparse: dict[str, Any] = {
        "inference": "sparse",
        "n_iter": max(1, round(protocol.epochs * rows / protocol.batch_size)),
        "n_inducing": protocol.n_inducing,
        "batch_size": protocol.batch_size,
        "learning_rate": protocol.learning_rate,
        "weight_decay": protocol.weight_decay,
    }
    if method is Method.GDKL:
        # Of its option a third is Adam's rate with inducing points.
        return GDKLRegressor(beta=protocol.beta, **{**sparse, "learning_rate": 3 * protocol.learning_rate}, **place)
    if method is Method.DKL:
        return DKLRegressor(**sparse, **place)
    if method is Method.DKL_HELD_OUT:
        return _HeldOutDKL(**sparse, **place)
    if method is Method.GDKL_EXACT:
        return GDKLRegressor(inference="exact", n_iter=protocol.exact_steps, **place)
    if method is Method.LINEAR:
        return LinearRegression()
    return HistGradientBoostingRegressor(random_state=seed)


class _HeldOutDKL(DKLRegressor):
    """DKL that keeps the rows from training which GDKL keeps, and takes the noise of its predictions from them."""

    _noise_of_held_out_rows = True


class _Model:
    """A regressor with a predictive distribution; one that has none gets a Gaussian of constant width."""

    def __init__(self, regressor: Any, seed: int):
        self.regressor = regressor
        self.seed = seed
        self.variance = 0.0

    def fit(self, X: FloatArray, y: FloatArray) -> None:
        if isinstance(self.regressor, (GDKLRegressor, DKLRegressor)):
            with warnings.catch_warnings():
                # That exact training takes its time is known here.
                warnings.simplefilter("ignore", GdklWarning)
                self.regressor.fit(X, y)
            outcome = self.regressor.model_.outcome
            if outcome is not None and outcome.interrupted:
                # A model stopped half-way is of use to a user and no result of the protocol.
                raise KeyboardInterrupt
            if outcome is not None and outcome.failed:
                raise NumericsError(f"{type(self.regressor).__name__} failed after {outcome.steps} steps: no result.")
            return
        if isinstance(self.regressor, LinearRegression):
            self.regressor.fit(X, y)
            self.variance = float(np.mean((y - self.regressor.predict(X)) ** 2))
            return
        held_out: NDArray[np.bool_] = np.random.default_rng(self.seed).random(len(y)) < _FOR_NOISE
        self.regressor.fit(X[~held_out], y[~held_out])
        self.variance = float(np.mean((y[held_out] - self.regressor.predict(X[held_out])) ** 2))
        self.regressor.fit(X, y)

    def predict(self, X: FloatArray) -> Predictive:
        if isinstance(self.regressor, (GDKLRegressor, DKLRegressor)):
            return self.regressor.predict_distribution(X)
        mean: FloatArray = self.regressor.predict(X)
        return Predictive.gaussian(mean, np.full_like(mean, self.variance), np.zeros_like(mean))
