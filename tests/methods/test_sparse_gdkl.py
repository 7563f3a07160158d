"""GDKL with inducing points: what guide and student make of columns and of gaps."""

from __future__ import annotations

from dataclasses import replace

import torch

from gdkl import infinite
from gdkl.guide import fit_relevance
from gdkl.methods import fit_batch_guide, fit_sparse_gdkl
from gdkl.nets import MLP, ColumnScale
from gdkl.training import Decay, Schedule, StudentOptions, TensorBatches

STEPS = Schedule(250, decay=Decay.COSINE, warm_up=0.2, beta2=0.99)


def _options(**options):
    def network(columns):
        return MLP(columns, (50, 50, 10))

    return StudentOptions(STEPS, feature_net=network, n_inducing=30, variational_rate=5.0, noise_start=0.5, **options)


def _source(rows, targets):
    return TensorBatches(rows, targets, 64, seed=0)


def test_the_student_follows_its_guide_where_no_labels_are():
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.linspace(-1.7, -0.7, 150), torch.linspace(0.7, 1.7, 150)])[:, None]
    y = (torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(300, generator=generator))[None].double()
    source = _source(x, y)
    guide, around, options = fit_batch_guide(source, infinite.mlp(), _options(), mu=0.1, groups=torch.zeros(1).long())
    guide = guide.precompute_marginals(source.take_pair, 300, seed=0)
    assert around is not None
    # Some lie in the gap, and the guide is less sure there.
    inside = around.rows[:, 0].abs() < 0.4
    assert around.marginals.variance[0, 0, inside].mean() > 10 * around.marginals.variance[0, 0].min()

    def divergence(around):
        model = fit_sparse_gdkl(source, guide, options, beta=0.01, surroundings=around)
        return sum(row["kl_unlabelled"] for row in model.history[-50:]) / 50

    assert divergence(around) < 0.6 * divergence(replace(around, mu=0.0))


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
    torch.testing.assert_close(scale.factors.double(), fit.multipliers, rtol=1e-2, atol=1e-3)
    expected = infinite.mlp().kernel(rows.double() * fit.multipliers)
    torch.testing.assert_close(guide.kernel.gram(rows.double()), expected, rtol=1e-2, atol=1e-2)
