"""Guides of mini-batches: each half given the other, from a kernel or a stored Gram alike, against dense algebra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import dense
from gdkl.gp import ClassLikelihood, Split, label_targets
from gdkl.guide import (
    Guide,
    PrecomputedGram,
    as_kernel_function,
    fit_class_guide,
    fit_guide,
    subset_size,
)
from gdkl.infinite import mlp
from gdkl.numerics import DataError, OptionError
from gdkl.training import ImageBatches

KERNEL = as_kernel_function(mlp(2))


def rows(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def guide_of(scale, noise, normaliser=1.0, **options):
    """A guide of given hyperparameters without training rows."""
    scale, noise = (torch.tensor([value], dtype=torch.float64) for value in (scale, noise))
    outputs = options.pop("outputs", scale.shape[1])
    nothing = scale.new_zeros(1, outputs, 0)
    normaliser = torch.tensor([normaliser], dtype=torch.float64)
    return Guide(KERNEL, normaliser, scale, noise, scale.new_zeros(1, 0, 0), nothing, scale, scale, **options)


def one_by_one(gram, targets, noise):
    """Each direction and output on its own, by explicit inverses."""
    gram, targets, noise = (value.numpy() for value in (gram, targets, noise))
    h = gram.shape[0] // 2
    first, second = np.arange(h), np.arange(h, 2 * h)
    mean, variance = np.empty_like(targets), np.empty_like(targets)
    for observed, held_out in ((first, second), (second, first)):
        for output in range(targets.shape[0]):
            K11 = gram[np.ix_(observed, observed)] + np.diag(noise[output, observed])
            K21, K22 = gram[np.ix_(held_out, observed)], gram[np.ix_(held_out, held_out)]
            mean[output, held_out], covariance = dense.posterior(K11, K21, K22, targets[output, observed], 0)
            variance[output, held_out] = np.diag(covariance)
    return mean, variance


def test_each_half_is_conditioned_on_the_other():
    x = rows(12)
    targets = torch.stack([x.sum(dim=-1), x[:, 0].sin()])
    p = guide_of([1.5, 0.5], [0.3, 0.1], normaliser=2.0).batch_posterior(x, targets)
    assert p.mean.shape == p.variance.shape == (1, 2, 12)
    for output, (scale, noise) in enumerate(((1.5, 0.3), (0.5, 0.1))):
        expected = one_by_one(scale / 2 * KERNEL.gram(x), targets, torch.full((2, 12), noise, dtype=torch.float64))
        for ours, other in zip(p, expected, strict=True):
            np.testing.assert_allclose(ours[0, output], other[output], atol=1e-9)


def test_halves_of_a_batch_are_a_symmetric_split_of_its_rows():
    x, y = rows(12), rows(12, seed=1)[:, :1].mT
    guide = fit_guide(KERNEL, x[None], y[None])
    halves = torch.arange(12).reshape(2, 1, 6)
    p = replace(guide, symmetric_splits=True).posterior(Split(halves[1], halves[0]))
    for ours, other in zip(guide.for_batches().batch_posterior(x, y), p, strict=True):
        torch.testing.assert_close(ours, other)


@pytest.mark.parametrize("b", [1, 7])
def test_odd_batches_are_refused(b):
    with pytest.raises(DataError, match="even number of rows"):
        guide_of([1.0], [0.1]).batch_posterior(rows(b), torch.zeros(1, b).double())


@pytest.mark.parametrize("kind", ["tensor", "array", "memmap"])
def test_online_equals_precomputed_on_the_same_rows(kind, tmp_path):
    x = rows(40)
    full = KERNEL.gram(x)
    if kind == "memmap":
        np.save(tmp_path / "gram.npy", full.numpy())
        stored = np.load(tmp_path / "gram.npy", mmap_mode="r")
    else:
        stored = full if kind == "tensor" else full.numpy()
    index = torch.randperm(40, generator=torch.Generator().manual_seed(1))[:16]
    targets = torch.stack([x.sum(dim=-1), x[:, 0]])[:, index]
    guide = guide_of([1.0, 2.0], [0.1, 0.2], normaliser=0.7)
    online = guide.batch_posterior(x[index], targets, index)
    picked = replace(guide, source=PrecomputedGram(stored)).batch_posterior(x[index], targets, index)
    torch.testing.assert_close(online.mean, picked.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(online.variance, picked.variance, rtol=1e-10, atol=1e-12)


def test_a_stored_gram_is_checked():
    with pytest.raises(DataError, match="must be square"):
        PrecomputedGram(np.zeros((3, 2)))
    with pytest.raises(OptionError, match="known positions"):
        PrecomputedGram(np.eye(3)).gram(torch.zeros(2, 1), None)


def test_a_guide_of_batches_keeps_hyperparameters_and_no_rows():
    x = rows(60)
    y = (x[:, 0].sin() + 0.1 * rows(60, seed=4)[:, 0])[None]
    whole = fit_guide(KERNEL, x[None].float(), y[None])
    guide = whole.for_batches()
    assert torch.equal(guide.scale, whole.scale)
    assert torch.equal(guide.noise, whole.noise)
    assert guide.gram.numel() == guide.targets.numel() == 0
    assert float(guide.normaliser) == pytest.approx(float(KERNEL.diagonal(x).mean()), rel=1e-6)
    assert [subset_size(n) for n in (10, 6000, 20_000, 10**6)] == [10, 300, 1000, 4000]


@pytest.mark.parametrize("label_noise", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_carry_their_variances_if_they_shall(label_noise, dtype):
    x = rows(10)
    labels = (x[:, 0] > 0).long()
    options = {"likelihood": ClassLikelihood.DIRICHLET, "batch_label_noise": label_noise}
    p = guide_of([25.0], [0.02], 2.0, outputs=2, **options).batch_posterior(x, labels, dtype=dtype)
    targets = label_targets(labels, 2, ClassLikelihood.DIRICHLET)
    noise = 0.02 + (targets.noise if label_noise else torch.zeros_like(targets.noise))
    assert p.mean.dtype == dtype
    for ours, other in zip(p, one_by_one(25.0 * KERNEL.gram(x) / 2.0, targets.values, noise), strict=True):
        np.testing.assert_allclose(ours[0], other, atol=1e-8 if dtype is torch.float64 else 2e-2)


def test_a_class_guide_of_batches_keeps_its_scale_and_the_rows_mean_variance():
    x = rows(80)
    labels = (x[:, 0] > 0).long()
    guide = fit_class_guide(KERNEL, x[None], labels[None], 2, scale=25.0).for_batches()
    normaliser = float(KERNEL.diagonal(x).mean())
    assert (float(guide.scale), float(guide.normaliser)) == (25.0, pytest.approx(normaliser))
    given = guide_of([25.0], [float(guide.noise)], normaliser, outputs=2, likelihood=ClassLikelihood.DIRICHLET)
    for ours, other in zip(guide.batch_posterior(x, labels), given.batch_posterior(x, labels), strict=True):
        torch.testing.assert_close(ours, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_batch_and_its_guide_make_nobody_wait_for_the_gpu():
    pytest.importorskip("cupy", reason="needs CuPy for the compiled kernel")
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8)
    source = ImageBatches(images, torch.arange(64) % 4, 16, 0, means=(0.5,) * 3, deviations=(0.2,) * 3, device="cuda")
    some = source.batch(0)
    guide = fit_class_guide(KERNEL, some.rows[None], some.targets[None], 4, scale=4.0).for_batches(label_noise=True)
    # The first of all is compiled, and an epoch's order is copied at its beginning.
    for step in range(2):
        batch = source.batch(step)
        guide.batch_posterior(batch.rows, batch.targets, batch.index)
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = source.batch(2)
        p = guide.batch_posterior(batch.rows, batch.targets, batch.index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool(torch.isfinite(p.mean).all())
