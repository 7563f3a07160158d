"""The guide of a batch: each half given the other, online and from a stored Gram alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gdkl.gp import ClassLikelihood, condition, label_targets
from gdkl.guide import (
    BatchGuide,
    ClassBatchGuide,
    OnlineGram,
    PrecomputedGram,
    as_kernel_function,
    fit_batch_guide,
    fit_class_batch_guide,
    fit_guide,
    subset_size,
)
from gdkl.guide.batch import both_halves
from gdkl.infinite import mlp
from gdkl.numerics import DataError, OptionError
from gdkl.training import ImageBatches

KERNEL = as_kernel_function(mlp(2))


def rows(n, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(gram, targets, noise):
    """Each direction and output on its own, through the conditioning that full-batch training uses."""
    h = gram.shape[0] // 2
    first, second = torch.arange(h), torch.arange(h, 2 * h)
    mean, variance = torch.empty_like(targets), torch.empty_like(targets)
    for observed, held_out in ((first, second), (second, first)):
        for output in range(targets.shape[0]):
            K = gram[torch.cat([observed, held_out])][:, observed].clone()
            K[:h] += torch.diag(noise[output, observed])
            p = condition(
                K, gram.diagonal()[held_out], targets[output, observed], torch.zeros(()).double(), name="a test"
            )
            mean[output, held_out], variance[output, held_out] = p
    return mean, variance


@pytest.mark.parametrize("shared", [True, False])
def test_both_directions_are_what_conditioning_gives(shared):
    x = rows(12)
    gram = KERNEL.gram(x)
    targets = torch.stack([x.sum(dim=-1), x[:, 0].sin()])
    noise = torch.full((1, 12), 0.3).double() if shared else torch.rand(2, 12).double() + 0.1
    p = both_halves(gram, targets, noise)
    mean, variance = one_by_one(gram, targets, noise.expand(2, 12))
    torch.testing.assert_close(p.mean, mean)
    torch.testing.assert_close(p.variance.expand(2, 12), variance)


@pytest.mark.parametrize("b", [1, 7])
def test_odd_batches_are_refused(b):
    with pytest.raises(DataError, match="even number of rows"):
        both_halves(torch.eye(b), torch.zeros(1, b), torch.ones(1, b))


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
    numbers = (0.7, torch.tensor([1.0, 2.0]).double(), torch.tensor([0.1, 0.2]).double(), torch.zeros(2))
    online = BatchGuide(OnlineGram(KERNEL), *numbers).posterior(x[index], targets, index)
    picked = BatchGuide(PrecomputedGram(stored), *numbers).posterior(x[index], targets, index)
    torch.testing.assert_close(online.mean, picked.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(online.variance, picked.variance, rtol=1e-10, atol=1e-12)


def test_a_stored_gram_is_checked():
    with pytest.raises(DataError, match="must be square"):
        PrecomputedGram(np.zeros((3, 2)))
    with pytest.raises(OptionError, match="known positions"):
        PrecomputedGram(np.eye(3)).gram(torch.zeros(2, 1), None)


def test_scale_and_noise_come_from_the_subset_by_evidence():
    x = rows(60)
    y = (x[:, 0].sin() + 0.1 * rows(60, seed=4)[:, 0])[None]
    guide = fit_batch_guide(KERNEL, x, y)
    whole = fit_guide(KERNEL, x[None], y[None])
    torch.testing.assert_close(guide.scale, whole.scale[0])
    torch.testing.assert_close(guide.noise, whole.noise[0])
    assert guide.normaliser == pytest.approx(float(KERNEL.diagonal(x).mean()))
    assert [subset_size(n) for n in (10, 6000, 20_000, 10**6)] == [10, 300, 1000, 4000]


@pytest.mark.parametrize("label_noise", [True, False])
def test_labels_carry_their_variances_if_they_shall(label_noise):
    x = rows(10)
    labels = (x[:, 0] > 0).long()
    guide = ClassBatchGuide(OnlineGram(KERNEL), 2.0, 25.0, 0.02, 2, label_noise=label_noise)
    p = guide.posterior(x, labels)
    targets = label_targets(labels, 2, ClassLikelihood.DIRICHLET)
    noise = 0.02 + (targets.noise if label_noise else torch.zeros_like(targets.noise))
    mean, variance = one_by_one(25.0 * KERNEL.gram(x) / 2.0, targets.values, noise)
    torch.testing.assert_close(p.mean[0], mean)
    torch.testing.assert_close(p.variance[0], variance)


def test_a_class_guides_scale_is_given_or_chosen():
    x = rows(80)
    labels = (x[:, 0] > 0).long()
    given = fit_class_batch_guide(KERNEL, x, labels, 2, scale=25.0)
    assert (given.scale, given.normaliser) == (25.0, pytest.approx(float(KERNEL.diagonal(x).mean())))
    chosen = fit_class_batch_guide(KERNEL, x, labels, 2)
    assert chosen.scale > 0
    assert chosen.normaliser == pytest.approx(given.normaliser)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_batch_and_its_guide_make_nobody_wait_for_the_gpu():
    pytest.importorskip("cupy", reason="needs CuPy for the compiled kernel")
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8)
    source = ImageBatches(images, torch.arange(64) % 4, 16, 0, means=(0.5,) * 3, deviations=(0.2,) * 3, device="cuda")
    guide = ClassBatchGuide(OnlineGram(KERNEL), 1.0, 4.0, 0.1, 4)
    # The first of all is compiled, and an epoch's order is copied at its beginning.
    for step in range(2):
        batch = source.batch(step)
        guide.posterior(batch.rows, batch.targets, batch.index)
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = source.batch(2)
        p = guide.posterior(batch.rows, batch.targets, batch.index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool(torch.isfinite(p.mean).all())
