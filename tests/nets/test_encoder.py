"""Stochastic encoders: codes, samples that rows share, principal components."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from gdkl.nets import GaussianEncoder, ImageFeatures, PrincipalComponents, code_samples, draw_codes, split_codes


def test_an_encoder_returns_means_and_variances():
    torch.manual_seed(0)
    inner = nn.Linear(3, 7)
    encoder = GaussianEncoder(inner, 3, codes=4)
    x = torch.randn(5, 3)
    mean, variance = split_codes(encoder(x))
    found = inner(x) @ encoder.head.weight.T + encoder.head.bias
    torch.testing.assert_close(mean, found[:, :4])
    torch.testing.assert_close(variance, torch.log1p(torch.exp(found[:, 4:])) + 1e-6)
    epsilon = torch.randn(5, 4)
    torch.testing.assert_close(draw_codes(encoder(x), epsilon), mean + variance.sqrt() * epsilon)


def test_an_encoder_over_images_is_in_the_precision_of_the_algebra():
    images = ImageFeatures(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (1, 4, 4), torch.float64)
    encoder = GaussianEncoder(images, 16, codes=3)
    assert encoder.head.in_features == 8
    assert encoder(torch.randn(2, 16)).dtype == torch.float64


def test_samples_of_codes_are_standard_normal():
    samples = code_samples(512, 50, seed=3)
    torch.testing.assert_close(samples.mean(dim=0), torch.zeros(50, dtype=torch.float64), atol=1e-9, rtol=0)
    assert float((samples.square().mean(dim=0) - 1).abs().max()) < 0.1
    assert torch.equal(samples, code_samples(512, 50, seed=3))
    assert not torch.equal(samples, code_samples(512, 50, seed=4))


def test_components_are_those_of_the_singular_value_decomposition():
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[:, 2] *= 5
    found = PrincipalComponents.of(rows, 3)(rows).numpy()
    centred = (rows - rows.mean(dim=0)).numpy()
    U, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found), np.abs((U * s)[:, :3]), atol=1e-9)
    wide = PrincipalComponents.of(rows[:4], 10)(rows[:4])
    assert wide.shape == (4, 10)
    assert float(wide[:, 4:].abs().max()) == 0
    distances = torch.cdist(wide, wide)
    torch.testing.assert_close(distances, torch.cdist(rows[:4], rows[:4]))
