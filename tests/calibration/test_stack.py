"""Folds, weights of a mixture and the choice of a warp, each against something computed another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from gdkl.calibration import draw_folds, held_out_count, hold_out_rows, log_density, select_warp, stack_weights
from gdkl.gp import Marginals
from gdkl.infinite import mlp
from gdkl.inputs import LogWarp, YeoJohnson


def test_held_out_rows_are_all_others():
    assert held_out_count(1000) == 200
    held_out, used = hold_out_rows(1000, 200, seed=3)
    assert torch.cat([held_out, used]).sort().values.tolist() == list(range(1000))
    again, other = (hold_out_rows(1000, 200, seed).held_out for seed in (3, 4))
    assert torch.equal(again, held_out)
    assert not torch.equal(other, held_out)


@pytest.mark.parametrize("n", [4, 5, 7, 30, 101])
def test_folds_are_disjoint_and_as_large(n):
    rows = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    held_out, used = draw_folds(rows, seed=1)
    assert len(held_out.unique()) == held_out.numel() >= n - 3
    for out, rest in zip(held_out, used, strict=True):
        assert sorted([*out.tolist(), *rest.tolist()]) == list(range(n))
    assert torch.equal(held_out, draw_folds(rows, seed=1).held_out)
    if n > 7:
        assert not torch.equal(held_out, draw_folds(rows, seed=2).held_out)


def test_equal_rows_are_never_on_both_sides():
    rows = torch.arange(40)[:, None].remainder(13).double()
    held_out, used = draw_folds(rows, seed=0)
    for out, rest in zip(held_out, used, strict=True):
        assert not set(rows[out, 0].tolist()) & set(rows[rest, 0].tolist())
        assert len(rest) > 20


def test_weights_maximise_the_posterior_of_held_out_targets():
    densities = torch.randn(3, 2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    densities[1] += 0.5
    weights = stack_weights(densities)
    torch.testing.assert_close(weights.sum(dim=0), torch.ones(2, dtype=torch.float64))
    for output in range(2):
        likelihoods = densities[:, output].exp().numpy()

        def loss(z, likelihoods=likelihoods):
            w = np.exp(z) / np.exp(z).sum()
            return -np.log(w @ likelihoods).sum() - np.log(w).sum()

        best = np.exp(minimize(loss, np.zeros(3)).x)
        np.testing.assert_allclose(weights[:, output].numpy(), best / best.sum(), atol=1e-4)


def test_weights_stay_off_zero_and_survive_densities_that_underflow():
    weights = stack_weights(torch.tensor([[[0.0] * 10], [[-1e5] * 10]], dtype=torch.float64))
    np.testing.assert_allclose(weights[:, 0].numpy(), [11 / 12, 1 / 12], atol=1e-6)


def test_log_density_is_the_normals():
    p = Marginals(torch.tensor([0.5, 1.0]), torch.tensor([2.0, 0.1]))
    expected = norm.logpdf([1.0, 2.0], [0.5, 1.0], np.sqrt([2.0, 0.1]))
    np.testing.assert_allclose(log_density(p, torch.tensor([1.0, 2.0])).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("skewed", [False, True])
def test_the_warp_is_the_logarithm_of_a_log_normal_target_and_none_of_a_normal_one(skewed):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(150, 2))
    y = 5 + np.sin(rows[:, 0]) + 0.3 * generator.normal(size=150)
    y = np.exp(2 * (y - 5)) if skewed else y
    chosen = select_warp(torch.as_tensor(rows), y, [None, YeoJohnson(5.0, 1.0, 0.3), LogWarp()], mlp(), seed=0)
    assert isinstance(chosen, LogWarp) if skewed else chosen is None
