"""The plain Gaussian process with one lengthscale per column: its priors, and tables without a finite evidence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import lognorm

import dense
from gdkl import GPRegressor
from gdkl.methods import fit_gp
from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.training import TrainingData, evidence


def _data(n=40, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(2 * x[..., 0]) + 0.1 * torch.randn(1, n, dtype=torch.float64, generator=generator)
    return TrainingData(x, ((y - y.mean()) / y.std()).unsqueeze(1))


def test_the_objective_is_evidence_and_prior():
    data = _data()
    model = fit_gp(data, ard=True)
    kernel = model.posterior.kernel.kernel
    lengthscales = kernel.base_kernel.lengthscale.flatten().numpy()
    scale, noise = float(kernel.outputscale), float(model.noise)
    assert lengthscales.argmin() == 0
    y = data.targets[0, 0].numpy()

    def objective(lengthscales, scale, noise):
        x = data.rows[0].numpy() / lengthscales
        value = dense.log_evidence(dense.rbf(x, x, scale=scale), y, noise)
        value += lognorm.logpdf(lengthscales, math.sqrt(3), scale=math.exp(math.sqrt(2)) * math.sqrt(6)).sum()
        return -(value + lognorm.logpdf(noise, 1.0, scale=math.exp(-4))) / 40

    best = objective(lengthscales, scale, noise)
    assert model.history[-1]["objective"] == pytest.approx(best, abs=1e-8)
    # A minimum: any step away from it is worse.
    for factor in (0.9, 1.1):
        assert objective(lengthscales, factor * scale, noise) > best
        assert objective(lengthscales, scale, factor * noise) > best
        for column in range(6):
            other = lengthscales.copy()
            other[column] *= factor
            assert objective(other, scale, noise) > best


@pytest.mark.parametrize("ard", [True, False])
def test_without_a_finite_evidence_values_are_safe(monkeypatch, ard):
    def refuse(*_, **__):
        raise NumericsError("no factor")

    monkeypatch.setattr(evidence, "marginal_likelihood", refuse)
    X = np.random.default_rng(0).standard_normal((30, 3))
    with pytest.warns(NumericsWarning, match="not finite from any start"):
        m = GPRegressor(ard=ard).fit(X, X[:, 0])
    assert m.score(X, X[:, 0]) > 0.5


def test_hard_tables_are_fitted():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    doubled = np.concatenate([x[:20], x[:20]])
    tables = {
        "noiseless and doubled": (doubled, doubled[:, 0]),
        "heavy tails": (rng.standard_cauchy((40, 3)) ** 3, rng.standard_cauchy(40) ** 3),
        "collinear": (np.column_stack([x, x, x.sum(1)]), x[:, 0]),
        "nearly constant": (np.column_stack([x[:, 0], np.eye(40)[0], np.eye(40)[1]]), np.eye(40)[0]),
        "more columns than rows": (rng.standard_normal((20, 60)), rng.standard_normal(20)),
    }
    for name, (X, y) in tables.items():
        p = GPRegressor(ard=True).fit(X, y).predict_distribution(X)
        assert np.isfinite(p.mean).all(), name
        assert (p.variance > 0).all(), name
