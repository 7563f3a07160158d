"""The class guide: split posteriors by the textbook, the scale by what it says of held-out labels, the search."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

import dense
from gdkl import infinite
from gdkl.gp import ClassLikelihood, LabelTargets, Split
from gdkl.guide import (
    as_kernel_function,
    fit_class_guide,
    image_guides,
    image_kernel_function,
    search_guides,
    table_guides,
)
from gdkl.guide.fit import try_scales
from gdkl.guide.kernels import takes_images
from gdkl.numerics import DataError
from gdkl.training import SplitSampler


def _data(n=40, classes=3, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, n, d, generator=generator, dtype=torch.float64)
    labels = (x[..., 0] > 0).long() + (x[..., 1] > 0.5).long() * (classes - 2)
    return x, labels


def _guide(**options):
    x, labels = _data()
    return x, labels, fit_class_guide(as_kernel_function(infinite.mlp(2)), x, labels, 3, **options)


def _textbook(guide, K, split, label):
    """Mean and variance of one class on the held-out rows of a split, by dense algebra."""
    one, two = split
    mean, covariance = dense.posterior(
        K[np.ix_(one, one)],
        K[np.ix_(two, one)],
        K[np.ix_(two, two)],
        guide.targets[0, label, one].numpy(),
        float(guide.noise),
    )
    return mean, np.diag(covariance)


def test_split_posteriors_are_the_textbook_ones_without_the_labels_noise():
    _, _, guide = _guide()
    splits = SplitSampler(40, members=2, seed=1).draw(3)
    p = guide.posterior(splits)
    assert p.mean.shape == p.variance.shape == (3, 2, 3, 20)
    K = float(guide.scale) * guide.gram[0].numpy()
    for s in range(3):
        for m in range(2):
            one, two = splits.observed[s, m], splits.held_out[s, m]
            for c in range(3):
                mean, variance = _textbook(guide, K, Split(one, two), c)
                np.testing.assert_allclose(p.mean[s, m, c], mean, atol=1e-8)
                np.testing.assert_allclose(p.variance[s, m, c], variance, atol=1e-8)


def test_further_rows_have_beliefs_and_no_labels():
    x, _, guide = _guide()
    more = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    wider = guide.with_rows(torch.cat([x, more], dim=1))
    one, two = torch.arange(20), torch.cat([torch.arange(20, 40), torch.arange(40, 46)])
    p = wider.posterior(Split(one[None], two[None]))
    K = float(guide.scale) * guide.kernel.gram(torch.cat([x, more], dim=1))[0].numpy() / float(guide.normaliser)
    for c in range(3):
        mean, variance = _textbook(guide, K, Split(one, two), c)
        np.testing.assert_allclose(p.mean[0, c], mean, atol=1e-8)
        np.testing.assert_allclose(p.variance[0, c], variance, atol=1e-8)


def test_left_out_rows_are_predicted_at_the_guides_own_scale():
    _, _, guide = _guide()
    latents = guide.left_out().latents
    K = float(guide.own_scale) * guide.gram[0].numpy()
    others = np.arange(1, 40)
    for c in range(3):
        noise = np.diag(float(guide.label_noise_factor) * guide.label_noise[0, c].numpy() + float(guide.noise))
        inverse = np.linalg.inv((K + noise)[np.ix_(others, others)])
        mean = K[0, others] @ inverse @ guide.targets[0, c, others].numpy()
        np.testing.assert_allclose(latents.mean[0, c, 0], mean, atol=1e-8)
        variance = K[0, 0] - K[0, others] @ inverse @ K[others, 0]
        np.testing.assert_allclose(latents.variance[0, c, 0], variance, atol=1e-8)


def test_the_predictor_carries_both_noises_at_its_own_scale():
    x, _, guide = _guide()
    mean, variance = guide.predictor(x).marginals(x[:, :5])
    K = float(guide.own_scale) * guide.gram[0].numpy()
    for c in range(3):
        noise = np.diag(float(guide.label_noise_factor) * guide.label_noise[0, c].numpy() + float(guide.noise))
        inverse = np.linalg.inv(K + noise)
        np.testing.assert_allclose(mean[0, c], K[:5] @ inverse @ guide.targets[0, c].numpy(), atol=1e-8)
        np.testing.assert_allclose(variance[0, c], np.diag(K[:5, :5] - K[:5] @ inverse @ K[:5].T), atol=1e-8)


def test_the_scale_is_the_best_on_held_out_labels_times_the_rule():
    _, labels, guide = _guide()
    scales = [2.0**power for power in range(-2, 15)]
    targets, tried = LabelTargets(guide.targets, guide.label_noise), torch.tensor([scales]).double()
    scores, _ = try_scales(guide.gram, targets, labels, ClassLikelihood.DIRICHLET, tried, guide.noise[0], seed=0)
    curve = dict(zip(scales, scores[0].tolist(), strict=True))
    best = max(curve, key=curve.get)
    assert float(guide.scale) == best
    if float(guide.label_noise_factor) == 1:
        assert float(guide.own_scale) == best
        assert float(guide.score) == pytest.approx(curve[best])
    else:
        assert float(guide.score) > 0.95 * curve[best]
    # A hill: far too small and far too large a scale both predict badly.
    assert curve[0.25] < curve[best] - 0.02
    assert curve[2.0**14] < curve[best] - 0.02


def test_sure_labels_lose_their_variances_and_doubtful_ones_keep_them():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 120, 2, generator=generator, dtype=torch.float64)
    x[..., 0] += 3 * torch.sign(x[..., 0])
    kernel = as_kernel_function(infinite.mlp(2))
    sure = fit_class_guide(kernel, x, (x[..., 0] > 0).long(), 2)
    doubtful = fit_class_guide(kernel, x, torch.randint(2, (1, 120), generator=generator), 2)
    assert float(sure.label_noise_factor) < 1
    assert float(doubtful.label_noise_factor) == 1


def test_a_scale_may_be_given():
    _, _, guide = _guide(scale=5.0)
    assert float(guide.scale) == 5.0


def test_as_regression_scale_and_noise_are_by_evidence():
    _, _, guide = _guide(likelihood=ClassLikelihood.GAUSSIAN)
    assert float(guide.scale) == float(guide.own_scale)
    assert float(guide.noise) >= 0.0174
    assert not guide.label_noise.any()


def test_one_seed_one_choice():
    one, two = (_guide(seed=3)[2] for _ in range(2))
    assert (one.scale, one.score, one.accuracy) == (two.scale, two.score, two.accuracy)


def test_the_search_prefers_the_network_that_knows_the_labels():
    """Labels by the sign of a product: no line parts them, a deep network's kernel can."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 150, 2, generator=generator, dtype=torch.float64)
    labels = (x[..., 0] * x[..., 1] > 0).long()
    candidates = {"linear": infinite.mlp(0), "deep": infinite.mlp(3)}
    trials = search_guides(candidates, x, labels, 2)
    assert [trial.name for trial in trials] == ["deep", "linear"]
    assert trials[0].log_likelihood > trials[1].log_likelihood + 0.1
    assert trials[0].accuracy > 0.8 > trials[1].accuracy


def test_candidates_have_names_of_their_own_and_can_all_be_computed():
    x, labels = _data(n=12)
    assert len(search_guides(table_guides(), x, labels, 3)) == len(table_guides())
    shape = (1, 8, 8)
    images = torch.randn(1, 12, 64, dtype=torch.float64)
    guides = image_guides(shape, torch.device("cpu"))
    assert any("pooled" in name for name in guides)
    trials = search_guides(guides, images, labels, 3, image_shape=shape)
    assert len(trials) == len(guides)
    assert not any("pooled" in name for name in image_guides((3, 32, 32), torch.device("cpu")))
    assert all("dense" in name for name in image_guides((3, 4, 4), torch.device("cpu")))


def test_image_guides_see_images_and_dense_ones_see_them_flat():
    shape = (2, 5, 5)
    conv = infinite.Sequential(
        infinite.Conv2d(3, padding="same"), infinite.ReLU(), infinite.Flatten(), infinite.Linear()
    )
    images = torch.randn(4, *shape, dtype=torch.float64)
    flat = images.flatten(1)
    assert takes_images(conv)
    assert takes_images(infinite.wide_resnet(blocks=1))
    assert takes_images(infinite.Sequential(infinite.Flatten(), infinite.mlp(1)))
    assert not takes_images(infinite.Residual(infinite.mlp(1), infinite.mlp(0)))
    kernel = image_kernel_function(conv, shape)
    torch.testing.assert_close(kernel.gram(flat), conv.kernel(images))
    torch.testing.assert_close(kernel.cross(flat[:2], flat), conv.kernel(images[:2], images))
    torch.testing.assert_close(kernel.diagonal(flat), conv.diagonal(images))
    torch.testing.assert_close(image_kernel_function(infinite.mlp(1), shape).gram(flat), infinite.mlp(1).kernel(flat))
    plain = image_kernel_function(lambda a, b: a[:, 0, 0, :1] * b[:, 0, 0, :1].T, shape)
    torch.testing.assert_close(plain.gram(flat), flat[:, :1] * flat[:, :1].T)
    rbf = gpytorch.kernels.RBFKernel().double()
    assert image_kernel_function(rbf, shape).gram(flat).shape == (4, 4)
    open_ended = infinite.Sequential(infinite.Conv2d(3, padding="same"), infinite.ReLU())
    with pytest.raises(DataError, match=r"does not take images of shape \(1, 4, 4\).*Flatten"):
        image_kernel_function(open_ended, (1, 4, 4))


def test_a_kernel_without_variance_is_refused():
    x, labels = _data()
    with pytest.raises(DataError, match="positive finite variance"):
        fit_class_guide(as_kernel_function(lambda a, b: torch.zeros(len(a), len(b))), x, labels, 3)


def test_members_may_have_splits_of_their_own():
    _, _, guide = _guide()
    splits = SplitSampler(40, members=3, seed=0).draw(2)
    shared = guide.posterior(splits)
    alone = guide.posterior(Split(splits.observed[:, 1:2], splits.held_out[:, 1:2]))
    torch.testing.assert_close(shared.mean[:, 1], alone.mean[:, 0])
