"""DUE, DLVKL and networks with a Gaussian head: norms after training, bounds by Monte Carlo, closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import dense
from gdkl.gp import ClassLikelihood, label_targets
from gdkl.methods import CodeOptions, SpectralLimit, fit_dkl, fit_dlvkl, fit_dlvkl_classes, fit_due, fit_nn
from gdkl.methods.due import fit_due_classes, fit_sparse_due
from gdkl.nets import (
    GaussianEncoder,
    ImageFeatures,
    PrincipalComponents,
    ResidualMLP,
    SpectralLayer,
    WideResNet,
    converge_norms,
    draw_codes,
    split_codes,
)
from gdkl.objectives import code_kl
from gdkl.training import ClassData, Schedule, StudentOptions, TensorBatches, TrainingData
from gdkl.training.build import build_network_with_head

FLOAT = torch.float64


def _data(n=24, outputs=1, members=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(1, n, 3, dtype=FLOAT, generator=generator)
    y = torch.sin(2 * rows[..., :1]) + 0.1 * torch.randn(1, n, outputs, dtype=FLOAT, generator=generator)
    return TrainingData(rows, y.mT.contiguous()).repeat(members)


def _options(n_iter=20, rate=1e-2, **options):
    return StudentOptions(Schedule(n_iter, rate), feature_net=lambda d: ResidualMLP(d, (8, 8, 8)), **options)


def true_norm(layer):
    """By singular values; of a convolution by many power iterations from another start, on images of its real size."""
    with torch.no_grad():
        if isinstance(layer, nn.Linear):
            return float(torch.linalg.matrix_norm(layer.weight, 2))
        v = torch.randn(layer.v.shape, generator=torch.Generator().manual_seed(99)).to(layer.v)
        for _ in range(400):
            v = layer.apply_adjoint(layer.apply_map(v))
            v = v / v.norm()
        return float(layer.apply_map(v).norm())


def norms(model):
    """For each layer of each member, the norm of the map that is applied."""
    found = []
    for index in range(model.members):
        network = model.embed.single if model.members == 1 else model.embed.select(slice(index, index + 1)).single
        for layer in network.modules():
            if isinstance(layer, SpectralLayer):
                found.append(true_norm(layer) / max(1.0, float(layer.norm().detach()) / layer.coefficient))
    return found


@pytest.mark.parametrize(("members", "iterations"), [(1, 1), (2, 3)])
def test_norms_of_dense_layers_after_training(members, iterations, monkeypatch):
    """Large steps, a limit that every layer meets."""
    data, options = _data(members=members), _options(60, 0.02)
    limit = SpectralLimit(0.4, iterations)
    exact = fit_due(data, options, limit)
    assert 0.4 * 0.999 < max(norms(exact)) <= 0.4 * 1.001
    assert len(norms(exact)) == 3 * members
    monkeypatch.setattr("gdkl.methods.due.converge_norms", None)
    assert max(norms(fit_due(data, options, limit))) <= 0.4 * 1.05


def test_norms_of_convolutions_after_training(monkeypatch):
    labels = torch.arange(8) % 2
    images = torch.randn(8, 3, 6, 5, generator=torch.Generator().manual_seed(0)) + labels.view(-1, 1, 1, 1)
    data = ClassData.make(images.flatten(1)[None], labels[None], 2, ClassLikelihood.DIRICHLET, FLOAT)

    def network(columns):
        return ImageFeatures(WideResNet(10, 1, dropout=0.1), (3, 6, 5), FLOAT)

    options = StudentOptions(Schedule(40, 1e-2), feature_net=network, momentum=0.9)
    limit = SpectralLimit(0.6, 1)
    exact = fit_due_classes(data, options, limit)
    assert len(norms(exact)) == 9
    assert 0.6 * 0.999 < max(norms(exact)) <= 0.6 * 1.001
    for norm in (layer for layer in exact.embed.modules() if isinstance(layer, nn.BatchNorm2d)):
        factor = (norm.weight * (norm.running_var + norm.eps).rsqrt()).abs().max()
        x = torch.randn(2, norm.num_features, 1, 1)
        slope = (norm(x + 1) - norm(x)).abs().max()
        assert float(slope) <= 0.6 * 1.001
        assert float(slope) == pytest.approx(min(0.6, float(factor)), rel=1e-3)
    monkeypatch.setattr("gdkl.methods.due.converge_norms", None)
    assert max(norms(fit_due_classes(data, options, limit))) <= 0.6 * 1.05


def test_due_without_a_limit_that_binds_is_dkl():
    data, options = _data(), _options(30)
    plain, free, bound = fit_dkl(data, options), *(fit_due(data, options, SpectralLimit(c, 1)) for c in (1e6, 0.1))
    for one, other in zip(plain.marginals(data.rows), free.marginals(data.rows), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(plain.marginals(data.rows).mean, bound.marginals(data.rows).mean, atol=1e-2)


def test_due_with_inducing_points_is_limited_too():
    data = _data(40)
    source = TensorBatches(data.rows[0], data.targets[0], 20, seed=0)
    model = fit_sparse_due(source, 1, _options(40, n_inducing=5), SpectralLimit(0.3, 1))
    assert len(norms(model)) == 3
    assert 0.3 * 0.999 < max(norms(model)) <= 0.3 * 1.001


def test_a_second_pass_to_convergence_changes_nothing():
    model = fit_due(_data(), _options(30), SpectralLimit(0.4, 1))
    before = model.marginals(_data().rows).mean
    converge_norms(model.embed)
    torch.testing.assert_close(model.marginals(_data().rows).mean, before, rtol=1e-5, atol=1e-5)


def test_the_codes_kl_is_torchs():
    generator = torch.Generator().manual_seed(0)
    mean, prior = torch.randn(2, 2, 5, 3, generator=generator, dtype=FLOAT)
    variance = torch.rand(2, 5, 3, generator=generator, dtype=FLOAT) + 0.1
    expected = kl_divergence(Normal(mean, variance.sqrt()), Normal(prior, 1.0)).sum(dim=-1).mean(dim=-1)
    torch.testing.assert_close(code_kl(mean, variance, prior), expected)


def _encoder_options(n_iter, rate, m, **options):
    return StudentOptions(
        Schedule(n_iter, rate), feature_net=lambda d: nn.Linear(d, 6).double(), n_inducing=m, **options
    )


def test_dlvkl_starts_from_its_closed_form_bound():
    """With q(u) at its prior every f has the prior's variance, whatever its code: each term in closed form."""
    data = _data(20, outputs=2)
    source = TensorBatches(data.rows[0], data.targets[0], 20, seed=0)
    options = _encoder_options(1, 1e-2, 8, noise_start=0.3, seed=4)
    history = fit_dlvkl(source, 2, options, CodeOptions(4, 0.7, 0.5)).history[0]
    torch.manual_seed(4)
    prior = PrincipalComponents.of(data.rows[0], 4)(data.rows[0])
    encoder = GaussianEncoder(nn.Linear(3, 6).double(), 3, 4).start_at(data.rows[0], prior).double()
    with torch.no_grad():
        mean, variance = split_codes(encoder(data.rows[0]))
    kl = kl_divergence(Normal(mean, variance.sqrt()), Normal(prior, 1.0)).sum(dim=-1).mean()
    ell = 0.5 * (math.log(2 * math.pi * 0.3) + (data.targets[0].square() + 1.0) / 0.3).sum(dim=0).mean()
    assert history["ell"] == pytest.approx(float(ell), rel=1e-6)
    assert history["kl_codes"] == pytest.approx(float(kl), rel=1e-9)
    assert history["kl_u"] == pytest.approx(0, abs=1e-12)
    assert history["objective"] == pytest.approx(float(ell + 0.7 * kl), rel=1e-6)


def test_dlvkl_bounds_the_evidence():
    """log p(y) = log E_z N(y; 0, K(z) + σ²I) over codes from their prior, by dense algebra and Monte Carlo."""
    rows = torch.tensor([[-1.5], [-0.5], [0.5], [1.5]], dtype=FLOAT)
    y = torch.tensor([[-1.0, -0.8, 0.9, 1.1]], dtype=FLOAT)
    options = _encoder_options(300, 1e-2, 4, noise_start=0.3, variational_rate=3.0)
    model = fit_dlvkl(TensorBatches(rows, y, 4, seed=0), 1, options, CodeOptions(1))
    kernel = model.posterior.kernel.kernel
    values = {"lengthscale": float(kernel.base_kernel.lengthscale), "scale": float(kernel.outputscale)}
    noise = float(model.posterior.noise)
    generator = np.random.default_rng(0)
    prior = PrincipalComponents.of(rows, 1)(rows).numpy()
    draws = [prior + generator.normal(size=prior.shape) for _ in range(1500)]
    logs = np.array([dense.log_evidence(dense.rbf(z, z, **values), y[0].numpy(), noise) for z in draws])
    evidence = float(np.logaddexp.reduce(logs) - math.log(len(logs)))
    # Parameters hardly move in the last steps, of which the objective is a noisy mean.
    bound = -4 * np.mean([row["objective"] for row in model.history[-50:]])
    assert bound < evidence + 0.05
    assert bound > evidence - 1.0
    # Neither KL may be missing from it.
    assert min(4 * model.history[-1][name] for name in ("kl_codes", "kl_u")) > 0.1


def test_dlvkl_predicts_the_mixture_over_codes():
    data = _data(30)
    source = TensorBatches(data.rows[0], data.targets[0], 30, seed=0)
    model = fit_dlvkl(source, 1, _encoder_options(150, 1e-2, 10, variational_rate=3.0), CodeOptions(3, 0.1))
    new = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(5), dtype=FLOAT)
    q = model.marginals(new)
    assert q.mean.shape == (16, 1, 6)
    assert model.members == 16
    assert model.noise.shape == (16, 1)
    # One component by NumPy: the posterior of q(u) at the code μ + σ·ε.
    posterior, encoded = model.posterior, model.embed(new)
    z = draw_codes(encoded, model.samples[3])[0].numpy()
    kernel = posterior.kernel.kernel
    values = {"lengthscale": float(kernel.base_kernel.lengthscale), "scale": float(kernel.outputscale)}
    cross = dense.rbf(z, posterior.features[0].numpy(), **values)
    np.testing.assert_allclose(q.mean[3, 0], cross @ posterior.weights[0, 0].numpy(), atol=1e-9)
    reduction = np.einsum("ij,jk,ik->i", cross, posterior.reduction[0, 0].numpy(), cross)
    np.testing.assert_allclose(q.variance[3, 0], values["scale"] - reduction, atol=1e-9)
    mean, covariance = model.covariance(new)
    torch.testing.assert_close(mean, q.mean)
    torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1), q.variance, rtol=1e-6, atol=1e-9)
    # All sixteen against many independent codes.
    many = draw_codes(encoded[0], torch.randn(4000, 1, 3, generator=torch.Generator().manual_seed(6), dtype=FLOAT))
    means = posterior.marginals(many.flatten(0, 1)[None]).mean.view(4000, 6)
    spread = means.std(dim=0)
    assert float(spread.max()) > 0.02
    assert bool(((q.mean[:, 0].mean(dim=0) - means.mean(dim=0)).abs() < 0.5 * spread + 0.01).all())


def test_dlvkl_of_labels_has_the_dirichlet_targets():
    rows, labels = _data(20).rows[0], torch.arange(20) % 3
    source = TensorBatches(rows, labels, 20, seed=0)
    options = _encoder_options(1, 1e-2, 5, noise_start=0.3)
    history = fit_dlvkl_classes(source, 3, options, CodeOptions(4), softmax=False).history[0]
    y = label_targets(labels, 3, ClassLikelihood.DIRICHLET)
    total = y.noise + 0.3
    ell = 0.5 * (torch.log(2 * math.pi * total) + (y.values.square() + 1.0) / total).sum(dim=0).mean()
    assert history["ell"] == pytest.approx(float(ell), rel=1e-6)
    softmax = fit_dlvkl_classes(source, 3, replace(options, members=2), CodeOptions(4)).history[0]
    # −E log softmax of three independent N(0, 1).
    f = np.random.default_rng(0).normal(size=(200_000, 3))
    expected = np.mean(np.logaddexp.reduce(f, axis=1) - f[:, 0])
    assert softmax["ell"] == pytest.approx(expected, abs=0.2)


def test_a_network_minimises_the_gaussian_likelihood_in_closed_form():
    data = _data(20, outputs=2, members=2)
    data = replace(
        data, noise_scale=torch.full((1, 1, 20), 2.0, dtype=FLOAT), noise_added=0.1 * data.targets[:1, :1] ** 2
    )
    options = replace(_options(1), seed=3)
    torch.manual_seed(3)
    network = build_network_with_head(data, options, 4)
    with torch.no_grad():
        mean, raw = network(data.rows).mT.chunk(2, dim=1)
    variance = 2.0 * (1e-4 + torch.log1p(raw.exp())) + data.noise_added
    expected = -Normal(mean, variance.sqrt()).log_prob(data.targets).mean()
    model = fit_nn(data, options)
    assert model.history[0]["objective"] == pytest.approx(float(expected), rel=1e-6)
    assert model.members == 2


def test_a_network_finds_the_mean_and_variance_of_each_group():
    """With one binary column the most probable means and variances are those of the two groups."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.arange(40) % 2).double()[None, :, None]
    y = torch.where(
        x > 0, 2 + 0.2 * torch.randn(x.shape, generator=generator), -1 + torch.randn(x.shape, generator=generator)
    )
    data = TrainingData(x, y.mT.double().contiguous())
    options = StudentOptions(Schedule(1500, 2e-2), feature_net=lambda d: nn.Linear(d, 2), noise_floor=1e-6)
    model = fit_nn(data, options)
    new = torch.tensor([[[0.0], [1.0]]], dtype=FLOAT)
    groups = [y[x == value] for value in (0, 1)]
    mean, variance = model.marginals(new)
    np.testing.assert_allclose(mean[0, 0], [float(group.mean()) for group in groups], atol=0.01)
    np.testing.assert_allclose(
        model.noise_at(new)[0, 0], [float(group.var(correction=0)) for group in groups], rtol=0.03
    )
    assert float(variance.abs().max()) == 0
    np.testing.assert_allclose(model.noise, model.noise_at(x).mean(dim=-1))
    assert model.covariance(new)[1].shape == (1, 1, 2, 2)
    assert float(model.covariance(new)[1].abs().max()) == 0


def test_some_members_of_networks_are_their_networks():
    data = _data(20, members=3)
    model = fit_nn(data, _options(5))
    some = model.select([2, 0])
    for name in ("marginals", "covariance"):
        whole, part = (getattr(one, name)(data.rows[:1])[0] for one in (model, some))
        torch.testing.assert_close(part, whole[[2, 0]])
    torch.testing.assert_close(some.noise, model.noise[[2, 0]])
