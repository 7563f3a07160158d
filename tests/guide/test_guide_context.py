"""Precomputed marginals are what the guide believes of each row, given rows that it is not one of."""

from __future__ import annotations

import pytest
import torch

from gdkl.gp import ClassLikelihood, ExactPosterior, ScaledKernel, label_targets
from gdkl.guide.context import context_size
from gdkl.numerics import OptionError
from guide.test_guide_batch import KERNEL, guide_of

N = 31


def setting(outputs=2):
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.stack([x.sum(dim=-1), x[:, 0].sin()])[:outputs]
    return x, y, guide_of([1.5, 0.7][:outputs], [0.1, 0.3][:outputs], normaliser=2.0)


def test_every_row_is_predicted_from_a_context_without_it():
    x, y, guide = setting()
    table = guide.precompute_marginals(lambda index: (x[index], y[:, index]), N, seed=3)
    size = context_size(N)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    contexts = order[:size], order[size : 2 * size]
    answers = []
    for context in contexts:
        kernel = ScaledKernel(KERNEL, guide.scale / guide.normaliser)
        posterior = ExactPosterior.condition(kernel, x[context][None], y[:, context][None], guide.noise, name="t")
        answers.append(posterior.marginals(x[None]))
    everything = table.batch_posterior(x, y, torch.arange(N))
    for row in range(N):
        allowed = [which for which in range(2) if row not in contexts[which].tolist()]
        agrees = [
            torch.allclose(everything.mean[0, :, row], answers[which].mean[0, :, row])
            and torch.allclose(everything.variance[0, :, row], answers[which].variance[0, :, row])
            for which in allowed
        ]
        assert any(agrees)
    p = table.batch_posterior(x[:0], y[:, :0], torch.tensor([4, 2]))
    torch.testing.assert_close(p.mean, everything.mean[..., [4, 2]])


@pytest.mark.parametrize("likelihood", list(ClassLikelihood))
def test_labels_carry_their_own_variances(likelihood: ClassLikelihood):
    x, y, _ = setting()
    labels = (y[0] > 0).long()
    guide = guide_of([1.5], [0.1], normaliser=2.0, outputs=2, likelihood=likelihood)
    table = guide.precompute_marginals(lambda index: (x[index], labels[index]), N, 3, torch.float64)
    size = context_size(N, 2)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    answers = []
    for context in (order[:size], order[size : 2 * size]):
        values, own = label_targets(labels[context], 2, likelihood, torch.float64)
        K = 0.75 * KERNEL.gram(x[context])
        across = 0.75 * KERNEL.cross(x, x[context])
        for c in range(2):
            solved = torch.linalg.solve(K + torch.diag(own[c] + 0.1), torch.cat([values[c][:, None], across.mT], dim=1))
            variance = 0.75 * KERNEL.diagonal(x) - (across * solved[:, 1:].mT).sum(dim=-1)
            answers.append((across @ solved[:, 0], variance))
    # Rows of the first context are predicted from the second, and the other way round.
    for rows, given in ((order[:size], 1), (order[size : 2 * size], 0)):
        p = table.batch_posterior(x[rows], labels[rows], rows)
        assert p.mean.dtype == torch.float64
        for c in range(2):
            mean, variance = answers[2 * given + c]
            torch.testing.assert_close(p.mean[0, c], mean[rows], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(p.variance[0, c], variance[rows], rtol=1e-5, atol=1e-5)


def test_rows_of_a_network_in_float32_have_a_guide_in_the_precision_of_the_algebra():
    # The noise of a noiseless table is less than what rounding does to a kernel matrix in float32.
    x, y, guide = setting()
    x, index = x[:30].float(), torch.arange(30)
    found = []
    for rows in (x, x.double()):
        table = guide.precompute_marginals(lambda index, rows=rows: (rows[index], y[:, index]), 30, seed=3)
        found.append([table.batch_posterior(rows, y[:, :30], index), guide.batch_posterior(rows, y[:, :30])])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_many_classes_have_smaller_contexts():
    assert context_size(10**6, 1000) ** 2 * 1000 <= 2**23
    assert context_size(10**6, 2) == context_size(10**6)


def test_what_was_precomputed_is_found_by_position_alone():
    x, y, guide = setting(1)
    table = guide.precompute_marginals(lambda index: (x[index], y[:, index]), N, seed=3)
    with pytest.raises(OptionError, match="known positions"):
        table.batch_posterior(x, y, None)
    with pytest.raises(OptionError, match="no rows"):
        guide.precompute_marginals(lambda index: (x[index], y[:, index]), 0, seed=3)
