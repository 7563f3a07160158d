"""Closed forms against Monte Carlo, the paper's other form of the objective, and numerical gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dense
from gdkl.gp import GPyTorchKernel, Marginals, condition, rbf_kernel
from gdkl.gp.rbf import scaled_rbf
from gdkl.objectives import (
    distillation,
    gaussian_term,
    guided,
    kl_term,
    marginal_likelihood,
    predictive,
)

SAMPLES = 1_000_000


def _log_normal(x, mean, variance):
    return -0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance)


def _t(value):
    return torch.tensor(value, dtype=torch.float64)


def _one_row(*values):
    """Numbers as those of one member, output and row."""
    return [_t(value).reshape(1, 1, 1) for value in values]


@pytest.mark.parametrize(
    ("mq", "vq", "mp", "vp"), [(0.3, 0.5, -0.2, 1.4), (0.0, 2.0, 0.0, 0.7), (1.0, 0.05, 0.9, 0.06)]
)
def test_kl_is_what_a_million_samples_say(mq, vq, mp, vp):
    f = mq + np.sqrt(vq) * np.random.default_rng(0).standard_normal(SAMPLES)
    terms = _log_normal(f, mq, vq) - _log_normal(f, mp, vp)
    closed = float(kl_term(Marginals(*_one_row(mq, vq)), Marginals(*_one_row(mp, vp))))
    assert abs(closed - terms.mean()) < 4 * terms.std() / np.sqrt(SAMPLES)


@pytest.mark.parametrize(("m", "v", "y", "noise"), [(0.3, 0.5, 1.0, 0.2), (-1.0, 0.01, 0.5, 1.5)])
def test_expected_log_likelihood_is_what_a_million_samples_say(m, v, y, noise):
    f = m + np.sqrt(v) * np.random.default_rng(1).standard_normal(SAMPLES)
    terms = -_log_normal(y, f, noise)
    closed = float(gaussian_term(Marginals(*_one_row(m, v)), *_one_row(y), _t([[noise]])))
    assert abs(closed - terms.mean()) < 4 * terms.std() / np.sqrt(SAMPLES)


@pytest.mark.parametrize(("m", "v", "y", "noise"), [(0.3, 0.5, 1.0, 0.2), (-1.0, 0.01, 0.5, 1.5)])
def test_log_predictive_is_what_a_million_samples_say(m, v, y, noise):
    f = m + np.sqrt(v) * np.random.default_rng(2).standard_normal(SAMPLES)
    densities = np.exp(_log_normal(y, f, noise))
    closed = np.exp(-float(predictive(Marginals(*_one_row(m, v)), *_one_row(y), _t([[noise]])).value))
    assert abs(closed - densities.mean()) < 4 * densities.std() / np.sqrt(SAMPLES)


def _problem(outputs=2, n1=6, n2=5):
    """Inputs with duplicate rows within and across the halves, a guide's marginals and targets."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    x1, x2 = draw(1, 1, n1, 3), draw(1, 1, n2, 3)
    x1[..., 1, :] = x1[..., 0, :]
    x2[..., 0, :] = x1[..., 0, :]
    x2[..., 2, :] = x2[..., 1, :]
    y1, y2 = draw(1, outputs, n1), draw(1, outputs, n2)
    p = Marginals(draw(1, outputs, n2), draw(1, outputs, n2).exp())
    return x1, x2, y1, y2, p


def _student(x1, x2, y1, log_lengthscale, log_scale, log_noise):
    """A student's marginals as a differentiable function of inputs and parameters."""

    def kernel(a, b):
        return scaled_rbf(a, b, log_lengthscale.exp()[..., None, None], log_scale.exp())

    k22 = log_scale.exp()[..., None].expand(*log_scale.shape, x2.shape[-2])
    return condition(torch.cat([kernel(x1, None), kernel(x1, x2)], dim=-1), k22, y1, log_noise.exp(), name="K")


def test_guided_at_beta_one_is_the_papers_other_form_in_value_and_gradient():
    """E_q[−log p(y|f)] + KL(q‖p) = KL(q‖p(f|x,y,D1)) − log N(y; μp, σp² + σn²), equal noises."""
    x1, x2, y1, y2, p = _problem()
    parameters = [
        x1.requires_grad_(True),
        x2.requires_grad_(True),
        torch.zeros(1, 2, dtype=torch.float64, requires_grad=True),
        torch.zeros(1, 2, dtype=torch.float64, requires_grad=True),
    ]
    noise = _t([[0.3, 0.2]])
    q = _student(x1, x2, y1, parameters[2], parameters[3], noise.log())
    ours = guided(q, p, gaussian_term(q, y2, noise), beta=1.0).value

    # The guide's belief once it has seen the label: precisions add.
    sn = noise.unsqueeze(-1)
    informed_variance = 1 / (1 / p.variance + 1 / sn)
    informed_mean = informed_variance * (p.mean / p.variance + y2 / sn)
    total = p.variance + sn
    log_normal = -0.5 * (torch.log(2 * torch.pi * total) + (y2 - p.mean) ** 2 / total)
    other = kl_term(q, Marginals(informed_mean, informed_variance)) - log_normal.mean(dim=(-2, -1))

    torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(ours, parameters, retain_graph=True), torch.autograd.grad(other, parameters), strict=True
    ):
        assert bool(torch.isfinite(a).all())
        assert float(a.abs().max()) > 0
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


OBJECTIVES = {
    "guided": lambda q, p, y, noise: guided(q, p, gaussian_term(q, y, noise), beta=0.7).value,
    "distillation": lambda q, p, y, noise: distillation(q, p).value,
    "predictive": lambda q, p, y, noise: predictive(q, y, noise).value,
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradcheck_over_splits_with_duplicate_rows(name):
    x1, x2, y1, y2, p = _problem()

    def objective(x1, x2, lengthscale, scale, log_noise):
        q = _student(x1, x2, y1, lengthscale, scale, log_noise)
        return OBJECTIVES[name](q, p, y2, log_noise.exp())

    start = [torch.full((1, 2), v, dtype=torch.float64, requires_grad=True) for v in (0.2, -0.1, -1.0)]
    assert torch.autograd.gradcheck(objective, (x1.requires_grad_(), x2.requires_grad_(), *start))


def test_further_terms_have_a_name_and_a_weight():
    q = Marginals(torch.zeros(2, 1, 3), torch.ones(2, 1, 3))
    p = Marginals(torch.ones(2, 1, 3), torch.ones(2, 1, 3))
    value, terms = guided(q, p, torch.ones(2), 0.5, kl_unlabelled=(kl_term(q, p), 3.0))
    assert list(terms) == ["ell", "kl", "kl_unlabelled"]
    torch.testing.assert_close(value, torch.full((2,), 1 + 0.5 * 0.5 + 3 * 0.5))


def test_gradcheck_of_the_evidence_with_duplicate_rows():
    x, _, y, _, _ = _problem()

    def objective(x, raw):
        kernel = GPyTorchKernel(rbf_kernel((1, 2)).double())
        return marginal_likelihood(kernel.gram(x), y, raw.exp(), name="K").value

    raw = torch.full((1, 2), -1.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(objective, (x.requires_grad_(), raw))


def test_evidence_is_the_textbook_one_and_its_terms_add_up():
    x, _, y, _, _ = _problem()
    kernel = GPyTorchKernel(rbf_kernel((1, 2)).double())
    noise = _t([[0.3, 0.05]])
    K = kernel.gram(x).detach()
    result = marginal_likelihood(K, y, noise, name="K")
    expected = [dense.log_evidence(K[0, o].numpy(), y[0, o].numpy(), float(noise[0, o])) for o in range(2)]
    np.testing.assert_allclose(float(result.value), -np.mean(expected) / y.shape[-1], rtol=1e-12)
    total = sum(float(term) for term in result.terms.values())
    np.testing.assert_allclose(total, float(result.value), rtol=1e-12)


def test_members_have_a_value_each():
    q = Marginals(torch.zeros(3, 2, 4), torch.ones(3, 2, 4))
    p = Marginals(torch.tensor([0.0, 1.0, 2.0]).reshape(3, 1, 1).expand(3, 2, 4), torch.ones(3, 2, 4))
    np.testing.assert_allclose(distillation(q, p).value, [0.0, 0.5, 2.0])
