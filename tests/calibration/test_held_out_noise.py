"""Exact students: rows are held out for the noise, and conditioned on in the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gdkl import GDKLRegressor
from gdkl.calibration import condition_with_noise, held_out_count, hold_out_rows, most_probable_noise
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


def test_held_out_rows_are_all_others():
    held_out, used = hold_out_rows(1000, held_out_count(1000, exact=True), seed=3)
    assert (len(used), len(held_out)) == (900, 100)
    assert torch.cat([held_out, used]).sort().values.tolist() == list(range(1000))
    again, other = (hold_out_rows(1000, 100, seed).held_out for seed in (3, 4))
    assert torch.equal(again, held_out)
    assert not torch.equal(other, held_out)
    assert held_out_count(999, exact=True) == 0


def test_the_noise_is_of_predictions_and_the_posterior_of_all_rows():
    data = _data(60)
    kept, held_out = data.take(torch.arange(45)), data.take(torch.arange(45, 60))
    guide = fit_guide(as_kernel_function(mlp()), kept.rows, kept.targets)
    model = fit_gdkl(kept.repeat(2), guide, StudentOptions(Schedule(5)))
    learned, q = model.noise, model.marginals(held_out.rows)
    calibrated = condition_with_noise(model, data.repeat(2), held_out)
    torch.testing.assert_close(calibrated.noise, most_probable_noise(q, held_out.targets))
    expected = ExactPosterior.condition(
        model.posterior.kernel, model.embed(data.repeat(2).rows), data.repeat(2).targets, learned, name="K"
    )
    torch.testing.assert_close(calibrated.posterior.weights, expected.weights)


@pytest.mark.parametrize("n_members", [1, 2])
def test_a_regressor_holds_rows_out_and_knows_them_in_the_end(n_members):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(2, 1000, 8))
    y, unseen = (np.sin(rows @ np.ones(8)) + 0.5 * rng.normal(size=len(rows)) for rows in (X, Z))
    model = GDKLRegressor(n_iter=100, n_members=n_members, inference="exact", random_state=0).fit(X, y)
    assert model.model_.posterior.features.shape[:2] == (n_members, 1000)
    low, high = model.predict_distribution(Z).interval(0.9)
    # A hundred rows tell a variance to a seventh.
    assert 0.82 < float(((unseen > low) & (unseen < high)).mean()) < 0.97
