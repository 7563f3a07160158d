"""Relevances: the evidence and its gradient against the textbook, what the search finds, hard tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gdkl import infinite
from gdkl.guide import fit_relevance, fit_relevance_folds
from gdkl.guide import relevance as module
from gdkl.guide.relevance_search import RelevanceEvidence, differentiable_gram

MLP = infinite.mlp()


def _data(n=60, d=4, seed=0, noise=0.1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, min(1, d - 1)]
    y = y + noise * torch.randn(n, dtype=torch.float64, generator=generator)
    return x, (y - y.mean()) / y.std()


def _textbook(network, x, y, multipliers, scale, noise, noise_scale, noise_added):
    K = network.kernel((x * multipliers).numpy())
    C = scale * K / np.diag(K).mean() + np.diag((noise * noise_scale + noise_added).numpy())
    _, logdet = np.linalg.slogdet(C)
    return -0.5 * sum(float(v @ np.linalg.solve(C, v)) + logdet + len(v) * math.log(2 * math.pi) for v in y.numpy())


@pytest.mark.parametrize(
    "network",
    [
        MLP,
        infinite.mlp(hidden_layers=1, bias_var=0.0),
        infinite.mlp(hidden_layers=2, activation="erf"),
        infinite.Sequential(infinite.Linear(), infinite.ReLU(), infinite.LayerNorm(), infinite.Linear()),
    ],
)
@pytest.mark.parametrize(("d", "outputs"), [(1, 1), (5, 2)])
def test_evidence_and_gradient_are_the_textbook_ones(network, d, outputs):
    x, _ = _data(n=14, d=d)
    x[3] = x[9]
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(outputs, 14, dtype=torch.float64, generator=generator)
    r, own, added = (torch.rand(size, dtype=torch.float64, generator=generator) + 0.5 for size in (d, 14, 14))
    found = RelevanceEvidence(differentiable_gram(network), x, y, own, added)(r, 1.7, 0.2)

    def value(log_r, log_scale, log_noise):
        return _textbook(network, x, y, log_r.exp(), math.exp(log_scale), math.exp(log_noise), own, added)

    at = r.log(), math.log(1.7), math.log(0.2)
    assert found.value == pytest.approx(value(*at), rel=1e-10)
    h = 1e-5
    for c in range(d):
        step = torch.zeros(d, dtype=torch.float64)
        step[c] = h
        slope = (value(at[0] + step, *at[1:]) - value(at[0] - step, *at[1:])) / (2 * h)
        assert float(found.by_multipliers[c]) == pytest.approx(slope, rel=1e-5, abs=1e-6)
    slope = (value(at[0], at[1] + h, at[2]) - value(at[0], at[1] - h, at[2])) / (2 * h)
    assert found.by_scale == pytest.approx(slope, rel=1e-5)
    slope = (value(*at[:2], at[2] + h) - value(*at[:2], at[2] - h)) / (2 * h)
    assert found.by_noise == pytest.approx(slope, rel=1e-5)


def test_the_fit_reports_its_own_evidence():
    x, y = _data()
    fit = fit_relevance(MLP, x, y, deviation=1.0)
    wanted = _textbook(MLP, x, y[None], fit.multipliers, fit.scale, fit.noise, torch.ones(60), torch.zeros(60)) / 60
    assert fit.log_evidence == pytest.approx(wanted, rel=1e-9)
    assert fit.normaliser == pytest.approx(float(MLP.diagonal(x * fit.multipliers).mean()))


def test_two_relevant_columns_of_ten_are_found():
    x, y = _data(n=100, d=10)
    fit = fit_relevance(MLP, x, y, deviation=1.5)
    isotropic = fit_relevance(MLP, x, y, deviation=0.0)
    assert set(fit.multipliers.topk(2).indices.tolist()) == {0, 1}
    assert float(fit.multipliers[:2].min()) > 1.5 * float(fit.multipliers[2:].max())
    assert fit.log_evidence > isotropic.log_evidence + 0.2
    new, wanted = _data(n=300, d=10, seed=1)
    errors = [float((f.predict(x, y, new).mean - wanted).square().mean()) for f in (fit, isotropic)]
    assert errors[0] < 0.5 * errors[1]


def test_no_deviation_is_the_isotropic_kernel():
    x, y = _data()
    assert float(fit_relevance(MLP, x, y, deviation=0.0).multipliers.std()) == 0


def test_a_group_of_columns_shares_its_multiplier():
    x, y = _data(d=5)
    fit = fit_relevance(MLP, x, y, deviation=1.0, groups=[1, 0, 0, 0, 2])
    assert len(fit.multipliers.unique()) == 3
    assert len(fit.multipliers[1:4].unique()) == 1
    # One group of all is the isotropic kernel but for the prior; a group each is no grouping.
    each = fit_relevance(MLP, x, y, deviation=1.0, groups=torch.arange(5))
    torch.testing.assert_close(each.multipliers, fit_relevance(MLP, x, y, deviation=1.0).multipliers)


@pytest.mark.parametrize("deviation", [0.0, 0.5, 1.5])
def test_a_warm_start_ends_where_a_cold_one_does(deviation):
    x, y = _data(n=80, d=6)
    some = fit_relevance(MLP, x[:64], y[:64], deviation=deviation)
    cold = fit_relevance(MLP, x, y, deviation=deviation)
    warm = fit_relevance(MLP, x, y, deviation=deviation, start=some, iterations=10)
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=0.01)
    # A fit that starts where it ended stays there.
    again = fit_relevance(MLP, x, y, deviation=deviation, start=cold, iterations=10)
    assert again.log_evidence == pytest.approx(cold.log_evidence, abs=2e-3)


def test_left_out_and_fold_predictions_are_those_of_fits_without_the_rows():
    x, y = _data(n=30, d=3)
    fit = fit_relevance(MLP, x, y, deviation=1.0)
    left = fit.left_out(x, y)
    rest = torch.arange(30) != 7
    alone = fit.predict(x[rest], y[rest], x[~rest])
    torch.testing.assert_close(left.mean[~rest], alone.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(left.variance[~rest], alone.variance + fit.noise, rtol=1e-8, atol=1e-10)
    folds = torch.arange(30) % 3
    parts = [{"rows": x[folds != fold], "targets": y[folds != fold]} for fold in range(3)]
    found = fit_relevance_folds(MLP, parts, deviation=1.0, iterations=10)
    rest = folds != 2
    refit = fit_relevance(MLP, x[rest], y[rest], deviation=1.0, iterations=10)
    torch.testing.assert_close(found[2].multipliers, refit.multipliers)
    assert found[2].noise == pytest.approx(refit.noise)


def test_rows_of_little_noise_count_more():
    x, y = _data(n=80, d=2, noise=0.0)
    generator = torch.Generator().manual_seed(5)
    own = torch.where(torch.arange(80) % 2 == 0, 1.0, 400.0).double()
    noisy = y + 0.05 * own.sqrt() * torch.randn(80, dtype=torch.float64, generator=generator)
    fits = [fit_relevance(MLP, x, noisy, deviation=1.0, noise_scale=scale) for scale in (own, None)]
    assert fits[0].log_evidence > fits[1].log_evidence + 0.1
    errors = [
        float((fit.predict(x, noisy, x, fit.noise * scale).mean - y).square().mean())
        for fit, scale in zip(fits, (own, torch.ones(80)), strict=True)
    ]
    assert errors[0] < errors[1]


def test_many_rows_are_fitted_through_some_of_them(monkeypatch):
    x, y = _data(n=150, d=5)
    monkeypatch.setattr(module, "MOST_ROWS", 80)
    fit = fit_relevance(MLP, x, y, deviation=1.0)
    assert set(fit.multipliers.topk(2).indices.tolist()) == {0, 1}
    wanted = _textbook(MLP, x, y[None], fit.multipliers, fit.scale, fit.noise, torch.ones(150), torch.zeros(150)) / 150
    assert fit.log_evidence == pytest.approx(wanted, rel=1e-6)  # scale and noise are those of all rows


def _hard_tables():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 4, dtype=torch.float64, generator=generator)
    noise = torch.randn(40, dtype=torch.float64, generator=generator)
    tails = torch.distributions.StudentT(torch.tensor(1.0).double()).sample((40,))
    duplicated = x.clone()
    duplicated[20:] = duplicated[:20]
    constant = x.clone()
    constant[:, 1:] = 0
    constant[0, 1] = 40**0.5
    binary = (x > 0).double()
    wide = torch.randn(20, 90, dtype=torch.float64, generator=generator)
    return {
        "noiseless": (x, x[:, 0]),
        "all noise": (x, noise),
        "constant target": (x, torch.zeros(40).double()),
        "one target differs": (x, torch.eye(40).double()[3]),
        "duplicated rows": (duplicated, noise),
        "duplicated and noiseless": (duplicated, duplicated[:, 0]),
        "collinear": (torch.cat([x, x, x @ x[:4, :4]], dim=1), x[:, 1]),
        "heavy tails": (x * 100 * tails.unsqueeze(-1), tails),
        "nearly constant columns": (constant, x[:, 0]),
        "all zeros": (torch.zeros_like(x), noise),
        "binary": (binary, binary[:, 0] * binary[:, 1]),
        "more columns than rows": (wide, wide[:, 0]),
        "two rows": (x[:2], noise[:2]),
        "tiny numbers": (x * 1e-12, noise),
        "huge numbers": (x * 1e12, noise),
    }


@pytest.mark.parametrize("name", _hard_tables())
@pytest.mark.parametrize("network", [MLP, infinite.mlp(hidden_layers=1, bias_var=1e-9)])
def test_hard_tables_are_fitted(name, network):
    x, y = _hard_tables()[name]
    for deviation in (0.0, 2.0):
        fit = fit_relevance(network, x, y, deviation=deviation)
        numbers = [fit.scale, fit.noise, fit.normaliser, *fit.multipliers.tolist()]
        assert all(math.isfinite(number) and number > 0 for number in numbers)
        p = fit.left_out(x, y)
        assert bool(torch.isfinite(p.mean).all() and (p.variance > 0).all())
