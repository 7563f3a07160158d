"""Objectives of inducing-point models against autograd and closed forms."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from gdkl.gp import Marginals
from gdkl.objectives import evidence_bound, gaussian_term, guided, softmax_term

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def setting(members=2, classes=3, n=4, samples=5):
    mean, variance = normal(members, classes, n), normal(members, classes, n).exp()
    labels = torch.randint(classes, (members, n), generator=GENERATOR)
    return mean.requires_grad_(), variance.requires_grad_(), labels, normal(samples, members, classes, n)


def test_the_softmax_term_and_its_gradient():
    mean, variance, labels, base = setting()

    def plain(mean, variance):
        f = mean + variance.sqrt() * base
        chosen = torch.log_softmax(f, dim=-2).gather(-2, labels.expand(5, 2, 4).unsqueeze(-2))
        return -chosen.squeeze(-2).mean(dim=(0, -1))

    torch.testing.assert_close(softmax_term(Marginals(mean, variance), labels, base), plain(mean, variance))
    assert torch.autograd.gradcheck(lambda m, v: softmax_term(Marginals(m, v), labels, base), (mean, variance))


def test_guided_softmax_averages_the_kl_over_classes_and_rows():
    mean, variance, labels, base = setting()
    q, p = Marginals(mean, variance), Marginals(normal(1, 3, 4), normal(1, 3, 4).exp())
    value, terms = guided(q, p, softmax_term(q, labels, base), 0.1)
    kl = kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(p.mean, p.variance.sqrt()))
    torch.testing.assert_close(terms["kl"], kl.mean(dim=(-2, -1)))
    torch.testing.assert_close(value, terms["ell"] + 0.1 * terms["kl"])


def test_bounds_share_the_kl_of_u_over_all_rows():
    mean, variance, labels, base = setting()
    q, kl = Marginals(mean, variance), torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]).double()
    ell = gaussian_term(q, mean.detach(), torch.ones(2, 3).double())
    value, terms = evidence_bound(ell, kl.mean(dim=-1), rows=10)
    assert terms["kl_u"].tolist() == pytest.approx([0.3, 0.1])
    torch.testing.assert_close(value, terms["ell"] + terms["kl_u"])
    value, terms = evidence_bound(softmax_term(q, labels, base), kl.sum(dim=-1), rows=10, weight=0.5)
    torch.testing.assert_close(value, terms["ell"] + 0.5 * terms["kl_u"])
    assert terms["kl_u"].tolist() == pytest.approx([0.9, 0.3])
