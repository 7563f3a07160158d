"""GDKL with inducing points: what guide and student make of columns and of gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gdkl import infinite
from gdkl.guide import fit_relevance
from gdkl.methods import fit_batch_guide, fit_sparse_gdkl
from gdkl.nets import MLP, ColumnScale
from gdkl.training import Decay, Schedule, StudentOptions, TensorBatches


def _options(**options):
    def network(columns):
        return MLP(columns, (50, 50, 10))

    return StudentOptions(
        Schedule(10), feature_net=network, n_inducing=30, variational_rate=5.0, noise_start=0.5, **options
    )


def _source(rows, targets):
    return TensorBatches(rows, targets, 64, seed=0)


def _gap(n):
    """Rows on either side of a gap, with targets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.linspace(-1.7, -0.7, n // 2), torch.linspace(0.7, 1.7, n // 2)])[:, None]
    return x, (torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(n, generator=generator))[None].double()


def test_the_guide_speaks_at_points_without_labels():
    x, y = _gap(200)
    source = _source(x, y)
    guide, around, options = fit_batch_guide(source, infinite.mlp(), _options(), mu=0.1, groups=torch.zeros(1).long())
    assert around is not None
    K, scale = guide.kernel.gram(x.double()), guide.scale / guide.normaliser
    K21 = scale * guide.kernel.cross(around.rows.double(), x.double())
    expected = K21 @ torch.linalg.solve(scale * K + guide.noise * torch.eye(200), y[0])
    torch.testing.assert_close(around.marginals.mean[0, 0], expected, rtol=1e-6, atol=1e-6)
    in_gap, on_rows = around.rows[:, 0].abs() < 0.4, (around.rows[:, 0].abs() - 1.2).abs() < 0.4
    variance = around.marginals.variance[0, 0]
    assert variance[in_gap].min() > 10 * variance[on_rows].max()
    model = fit_sparse_gdkl(source, guide, replace(options, schedule=Schedule(2)), beta=0.5, surroundings=around)
    for row in model.history:
        assert row["objective"] == pytest.approx(row["ell"] + 0.5 * row["kl"] + 0.1 * row["kl_unlabelled"])


@pytest.mark.long
def test_the_student_is_unsure_in_a_gap_as_its_guide_is():
    x, y = _gap(3000)
    source = TensorBatches(x, y, 512, seed=0)
    schedule = Schedule(2000, decay=Decay.COSINE, warm_up=0.05, beta2=0.99)
    options = replace(_options(), schedule=schedule, feature_net=MLP, n_inducing=128)
    guide, around, options = fit_batch_guide(source, infinite.mlp(), options, mu=0.01, groups=torch.zeros(1).long())
    guide = guide.precompute_marginals(source.take_pair, 3000, seed=0)
    model = fit_sparse_gdkl(source, guide, options, beta=0.01, surroundings=around)
    assert around is not None
    in_gap = around.rows[:, 0].abs() < 0.4
    believed = around.marginals.variance[0, 0, in_gap].sqrt().mean()
    assert model.marginals(around.rows[in_gap][None]).variance.sqrt().mean() > 0.8 * believed


def test_guide_and_student_see_columns_times_their_relevances():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 4, generator=generator)
    targets = torch.sin(2 * rows[:, 1]).double()[None]
    groups = torch.tensor([0, 1, 2, 2])
    guide, around, options = fit_batch_guide(_source(rows, targets), infinite.mlp(), _options(), mu=0, groups=groups)
    assert around is None
    scale = options.feature_net(4)[0]
    assert isinstance(scale, ColumnScale)
    assert int(scale.factors.argmax()) == 1
    assert scale.factors[2] == scale.factors[3]
    # The subset is all rows here, in another order.
    fit = fit_relevance(infinite.mlp(), rows.double(), targets, deviation=1.0, groups=groups)
    # Small relevances are scaled up for the student, so that the largest is one; the guide has them as they are.
    assert fit.multipliers.amax() < 1
    seen = fit.multipliers / fit.multipliers.amax()
    torch.testing.assert_close(scale.factors.double(), seen, rtol=1e-2, atol=1e-3)
    expected = infinite.mlp().kernel(rows.double() * fit.multipliers)
    torch.testing.assert_close(guide.kernel.gram(rows.double()), expected, rtol=1e-2, atol=1e-2)
