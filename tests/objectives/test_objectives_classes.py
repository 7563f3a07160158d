"""The class objective: its value by autograd's own softmax, its gradient by differences."""

from __future__ import annotations

import math

import torch
from torch.autograd import gradcheck
from torch.distributions import Normal, kl_divergence

from gdkl.gp import Marginals, base_samples
from gdkl.objectives import cross_entropy, guided, predictive_label_term


def _case(members=2, classes=3, n=4):
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(members, classes, n, generator=generator, dtype=torch.float64)
    variance = torch.rand(members, classes, n, generator=generator, dtype=torch.float64) + 0.2
    labels = torch.randint(classes, (members, n), generator=generator)
    return mean, variance, labels, base_samples(16, classes, seed=5)


def _guided(q, p, labels, base, beta):
    return guided(q, p, predictive_label_term(q, labels, base), beta)


def _kl(q, p):
    """By torch, averaged over classes and rows."""
    return kl_divergence(*(Normal(mean, variance.sqrt()) for mean, variance in (q, p))).mean(dim=(-2, -1))


def _plain(mean, variance, labels, base):
    f = mean + variance.sqrt() * base[:, None, :, None]
    p = torch.softmax(f, dim=-2).gather(-2, labels.unsqueeze(-2).expand(len(base), -1, 1, -1)).squeeze(-2)
    return p.mean(dim=0).log()


def test_the_value_is_the_log_of_the_mean_probability():
    mean, variance, labels, base = _case()
    ours = predictive_label_term(Marginals(mean, variance), labels, base)
    torch.testing.assert_close(ours, -_plain(mean, variance, labels, base).mean(dim=-1))


def test_the_gradient_is_right():
    mean, variance, labels, base = _case()
    inputs = (mean.requires_grad_(), variance.requires_grad_())
    assert gradcheck(lambda m, v: predictive_label_term(Marginals(m, v), labels, base), inputs)
    p = Marginals(torch.zeros_like(mean), torch.ones_like(mean))
    assert gradcheck(lambda m, v: _guided(Marginals(m, v), p, labels, base, 0.7).value, inputs)


def test_hopeless_labels_keep_a_finite_value_and_gradient():
    mean = torch.tensor([[[0.0], [2000.0]]], dtype=torch.float64, requires_grad=True)
    variance = torch.full_like(mean, 0.01)
    value = predictive_label_term(Marginals(mean, variance), torch.tensor([[0]]), base_samples(8, 2, 0))
    assert 1999 < value.item() < 2001
    value.sum().backward()
    torch.testing.assert_close(mean.grad, torch.tensor([[[-1.0], [1.0]]], dtype=torch.float64))


def test_guided_is_its_terms_and_the_kl_is_a_mean_over_classes():
    mean, variance, labels, base = _case()
    q, p = Marginals(mean, variance), Marginals(0 * mean, 1 + 0 * variance)
    objective = _guided(q, p, labels, base, beta=2.0)
    torch.testing.assert_close(objective.terms["kl"], _kl(q, p))
    torch.testing.assert_close(objective.terms["ell"], -_plain(mean, variance, labels, base).mean(dim=1))
    torch.testing.assert_close(objective.value, objective.terms["ell"] + 2 * objective.terms["kl"])


def test_rows_without_a_label_count_in_the_kl_alone():
    mean, variance, labels, base = _case()
    q, p = Marginals(mean, variance), Marginals(0 * mean, 1 + 0 * variance)
    objective = _guided(q, p, labels[:, :3], base, beta=2.0)
    torch.testing.assert_close(objective.terms["kl"], _kl(q, p))
    torch.testing.assert_close(objective.terms["ell"], -_plain(mean, variance, labels, base)[:, :3].mean(dim=1))


def test_cross_entropy_of_indifference_is_log_classes():
    value = cross_entropy(torch.zeros(2, 5, 3), torch.zeros(2, 3).long()).value
    torch.testing.assert_close(value, torch.full((2,), math.log(5)))
