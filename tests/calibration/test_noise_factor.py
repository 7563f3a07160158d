"""Noise that depends on the inputs: found where residuals show it, and not found where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from gdkl import GDKLRegressor
from gdkl.calibration import HeldOutMixture, draw_folds, fit_noise_factor, fold_by_fold
from gdkl.infinite import mlp
from gdkl.training import TrainingData
from mixed_table import mixed


def _fit(deviation, seed=0, n=300, outputs=1, tails=None):
    """Models that know the functions, and that the noise has a variance of 0.1 on average."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-1, 1, (n, 3))
    draws = generator.standard_t(tails, (outputs, n)) if tails else generator.standard_normal((outputs, n))
    y = np.sqrt(0.1) * deviation(rows[:, 0]) * draws
    data = TrainingData(torch.as_tensor(rows)[None], torch.as_tensor(y)[None])
    folds = draw_folds(data.rows[0], seed=0)
    zero = torch.zeros_like(fold_by_fold(data.repeat(4).take_each(folds.held_out).targets)).expand(2, -1, -1)
    held_out = HeldOutMixture(zero, zero + 0.01, zero + 0.1)
    return rows, folds, fit_noise_factor(data, held_out, folds, mlp(), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_factor_follows_the_noise(outputs):
    rows, folds, factor = _fit(lambda x: 0.2 + 0.8 * (x + 1), outputs=outputs)
    new = torch.linspace(-0.9, 0.9, 50).double()
    found = factor.model.marginals(torch.stack([new, 0 * new, 0 * new], dim=-1)[None]).mean.exp()[0, 0]
    wanted = (0.2 + 0.8 * (new + 1)) ** 2
    assert spearmanr(found, wanted).statistic > 0.95
    ratio = (factor.level * found / wanted).log().abs()
    assert float(ratio.mean()) < 0.6
    # At held-out rows too, though their own residuals say nothing there.
    left = factor.held_out.flatten()
    assert left.shape == (300,)
    assert spearmanr(left, rows[folds.held_out.flatten(), 0]).statistic > 0.8


@pytest.mark.parametrize("tails", [None, 4])
def test_constant_noise_stays_constant(tails):
    assert [_fit(np.ones_like, seed, n=200, tails=tails)[-1] for seed in range(4)] == [None] * 4


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_noise_that_is_next_to_nothing_beside_what_is_unknown():
    """Residuals then say hardly anything of the noise, and what they say must not grow from round to round."""
    frame, y = mixed(50)
    rows = frame.drop(columns="sold")
    p = GDKLRegressor(n_iter=1, warp=None, random_state=0).fit(rows, y).predict_distribution(rows)
    assert np.isfinite(p.log_prob(y)).all()
