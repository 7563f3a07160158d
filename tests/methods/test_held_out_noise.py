"""Exact students: rows are spared for the noise, and conditioned on in the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gdkl.methods.held_out_noise import most_probable_noise, spare_rows, with_held_out_noise

from gdkl import GDKLRegressor
from gdkl.gp import ExactPosterior
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.infinite import mlp
from gdkl.methods import fit_gdkl
from gdkl.training import Schedule, StudentOptions, TrainingData


def _data(n):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, n, 2, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.randn(1, 1, n, generator=generator, dtype=torch.float64)
    return TrainingData(rows, torch.sin(2 * rows[..., 0]).unsqueeze(1) + noise)


def test_spared_rows_are_all_others():
    data = _data(1000)
    kept, held_out = spare_rows(data, seed=3)
    assert (kept.n, held_out.n) == (900, 100)
    together = torch.cat([kept.rows, held_out.rows], dim=1)[0].sort(dim=0).values
    torch.testing.assert_close(together, data.rows[0].sort(dim=0).values, rtol=0, atol=0)
    again, other = (spare_rows(data, seed)[1] for seed in (3, 4))
    assert torch.equal(again.rows, held_out.rows)
    assert not torch.equal(other.rows, held_out.rows)
    assert spare_rows(_data(999), seed=3)[1] is None


def test_the_noise_is_of_predictions_and_the_posterior_of_all_rows():
    data = _data(60)
    kept, held_out = data.take(torch.arange(45)), data.take(torch.arange(45, 60))
    guide = fit_guide(as_kernel_function(mlp()), kept.rows, kept.targets)
    model = fit_gdkl(kept.repeat(2), guide, StudentOptions(Schedule(5)))
    learned, q = model.noise, model.marginals(held_out.rows)
    calibrated = with_held_out_noise(model, data.repeat(2), held_out)
    torch.testing.assert_close(calibrated.noise, most_probable_noise(q, held_out.targets))
    expected = ExactPosterior.condition(
        model.posterior.kernel, model.embed(data.repeat(2).rows), data.repeat(2).targets, learned, name="K"
    )
    torch.testing.assert_close(calibrated.posterior.weights, expected.weights)


@pytest.mark.parametrize("n_members", [1, 2])
def test_a_regressor_spares_rows_and_knows_them_in_the_end(n_members):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(2, 1000, 8))
    y, unseen = (np.sin(rows @ np.ones(8)) + 0.5 * rng.normal(size=len(rows)) for rows in (X, Z))
    model = GDKLRegressor(n_iter=100, n_members=n_members, inference="exact", random_state=0).fit(X, y)
    assert model.model_.posterior.features.shape[:2] == (n_members, 1000)
    low, high = model.predict_distribution(Z).interval(0.9)
    # A hundred rows tell a variance to a seventh.
    assert 0.82 < float(((unseen > low) & (unseen < high)).mean()) < 0.97
