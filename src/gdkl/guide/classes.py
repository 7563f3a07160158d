"""The guide of a classifier: its scale chosen for what it says of labels it has not seen, not by evidence.

Evidence prefers scales at which the guide is far too unsure of labels, and a student follows its guide. So the guide
is asked: given the labels of one random half, how probable are those of the other? The output scale that answers best
over several splits, times `STUDENT_MULTIPLE`, is the one that the student is guided by. In the same way held-out labels
decide how much of the labels' own variances a prediction carries. docs/method.md has the measurements behind all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gdkl.gp import (
    NOISE_START,
    ClassLikelihood,
    ExactPosterior,
    KernelFunction,
    LabelTargets,
    LeftOut,
    Marginals,
    ScaledKernel,
    Split,
    base_samples,
    class_log_probs,
    condition_on_labels,
    label_targets,
    leave_one_out,
    take_targets,
)
from gdkl.gp.conditioning import floor_variance
from gdkl.guide.evidence import fit_by_evidence
from gdkl.numerics import DataError, cholesky, require_memory, tensor_bytes

_MATRIX_NAME = "the guide's kernel matrix"

#: The student's guide has this many times the output scale at which the guide alone predicts held-out labels best.
STUDENT_MULTIPLE = 1.0

#: Shares of the labels' own variances that are tried for prediction. The whole is kept unless held-out labels speak
#: clearly for less: an improvement of the negative log-likelihood by this part of it.
_SHARES = (1.0, 0.3, 0.1)
_CLEARLY = 0.05

#: Output scales that are tried, over a Gram of mean diagonal one: powers of two.
_SCALES = tuple(2.0**power for power in range(-2, 15))
#: Random halvings of the training rows that a scale is judged by.
_SPLITS = 4
#: At most this many rows take part in a halving: the best scale hardly depends on more, the time does.
_MOST_ROWS = 600
_SAMPLES = 256


@dataclass(frozen=True)
class ClassGuide:
    """A Gaussian process a class with one fixed Gram matrix, one output scale and one noise.

    Scale and noise are shared by the classes, so that a split takes one factorisation for all of them.

    Attributes:
        kernel: The kernel function, unscaled.
        gram: Gram matrix of the training rows divided by its mean diagonal, ``(members, n, n)``.
        normaliser: That mean diagonal, ``(members,)``.
        targets: Targets of the latent functions, ``(members, classes, n)`` each.
        scale: Output scale as the student sees it, ``(members,)``.
        noise: Noise variance beside that of the labels, ``(members,)``.
        own_scale: Output scale at which the guide alone predicts best, ``(members,)``.
        label_share: Share of the labels' own variances that predictions carry, ``(members,)``.
        held_out_log_likelihood: Log probability of held-out labels at that scale, ``(members,)``.
        held_out_accuracy: Part of the held-out labels that it gets right, ``(members,)``.
        curve: Held-out log-likelihood by output scale with the labels' whole variances, averaged over members.
    """

    kernel: KernelFunction
    gram: Tensor
    normaliser: Tensor
    targets: LabelTargets
    scale: Tensor
    noise: Tensor
    own_scale: Tensor
    label_share: Tensor
    held_out_log_likelihood: Tensor
    held_out_accuracy: Tensor
    curve: Mapping[float, float]

    @torch.no_grad()
    def posterior(self, split: Split) -> Marginals:
        """Latent marginals p(f | x, D1) on the held-out rows, without the labels' own variances.

        Args:
            split: Indices ``(..., members, n1)`` and ``(..., members, n2)``.

        Returns:
            Means and variances, ``(..., members, classes, n2)``.
        """
        K11, K21, k22 = _blocks(self.gram, split)
        y1 = take_targets(self.targets.values, split.observed)
        ratio = (self.noise / self.scale)[..., None]
        K11.diagonal(dim1=-2, dim2=-1).add_(ratio)
        L = cholesky(K11, name=_MATRIX_NAME)
        n2 = k22.shape[-1]
        solved = torch.linalg.solve_triangular(L, torch.cat([K21.mT, y1.mT], dim=-1), upper=False)
        A, V = solved[..., :n2], solved[..., n2:]
        mean = V.mT @ A
        variance = floor_variance(k22 - A.square().sum(dim=-2), k22)
        return Marginals(mean, (self.scale[..., None] * variance).unsqueeze(-2).expand_as(mean))

    @torch.no_grad()
    def with_rows(self, rows: Tensor) -> ClassGuide:
        """The same guide, which can be asked about further rows too, though it has no labels of theirs.

        Args:
            rows: The training rows and after them the further ones, ``(members, n + more, d)``.
        """
        members, count, _ = rows.shape
        require_memory(
            4 * members * tensor_bytes(count, count, dtype=self.gram.dtype),
            what=f"the guide's kernel matrix of {count} rows",
            remedy="Train on fewer rows, or without further ones.",
            device=rows.device,
        )
        return replace(self, gram=self.kernel.gram(rows).to(self.gram) / self.normaliser[..., None, None])

    @torch.no_grad()
    def left_out(self) -> LeftOut:
        """What the guide alone, at its own best scale, believes about each training row given the others' labels."""
        targets = self.targets.share(self.label_share)
        noise = self.noise.unsqueeze(-1).expand(targets.values.shape[:-1])
        K = (self.own_scale[:, None, None] * self.gram).unsqueeze(-3) + torch.diag_embed(
            targets.noise + noise[..., None]
        )
        factor = cholesky(K, name=_MATRIX_NAME)
        weights = torch.cholesky_solve(targets.values.unsqueeze(-1), factor).squeeze(-1)
        return leave_one_out(factor, weights, targets, noise)

    def bytes_per_split(self) -> int:
        """Peak memory that `posterior` takes for one split of all members."""
        members, _, n = self.targets.values.shape
        return members * tensor_bytes(5, n // 2 + 1, n // 2 + 1, dtype=self.gram.dtype)

    def predictor(self, rows: Tensor) -> ExactPosterior:
        """The guide as a model of its own, at its own best scale, conditioned on all rows ``(members, n, d)``."""
        members, classes, n = self.targets.values.shape
        require_memory(
            4 * members * tensor_bytes(classes, n, n, dtype=self.gram.dtype),
            what=f"the guide's own predictions from {n} rows of {classes} classes",
            remedy="Train on fewer rows; GDKLClassifier does without them with guide_share=0.",
            device=rows.device,
        )
        scale = (self.own_scale / self.normaliser).unsqueeze(-1).expand(-1, classes).contiguous()
        noise = self.noise.unsqueeze(-1).expand(-1, classes).contiguous()
        # The scale is in the precision of the algebra, and so is what it multiplies.
        return condition_on_labels(
            ScaledKernel(self.kernel, scale), rows, self.targets.share(self.label_share), noise, name=_MATRIX_NAME
        )


@dataclass(frozen=True)
class BothWays:
    """A guide that is asked about each half of a split in turn."""

    guide: ClassGuide

    @property
    def gram(self) -> Tensor:
        """The guide's."""
        return self.guide.gram

    def posterior(self, split: Split) -> Marginals:
        """Marginals of the held-out rows given the observed ones, and after them of those given the others."""
        there, back = self.guide.posterior(split), self.guide.posterior(Split(split.held_out, split.observed))
        return Marginals(*(torch.cat(values, dim=-1) for values in zip(there, back, strict=True)))

    def bytes_per_split(self) -> int:
        """Peak memory that `posterior` takes for one split of all members: one way after the other."""
        return self.guide.bytes_per_split()


def _blocks(gram: Tensor, split: Split) -> tuple[Tensor, Tensor, Tensor]:
    """K₁₁, K₂₁ and k₂₂ of each split, in new memory."""
    observed, held_out = split
    members = torch.arange(observed.shape[-2], device=gram.device) % gram.shape[0]
    which = members[:, None, None]
    one, two = observed.unsqueeze(-2), held_out.unsqueeze(-1)
    K11 = gram[which, observed.unsqueeze(-1), one]
    K21 = gram[which, two, one]
    return K11, K21, gram.diagonal(dim1=-2, dim2=-1)[members[:, None], held_out]


@torch.no_grad()
def fit_class_guide(
    kernel: KernelFunction,
    rows: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    scale: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> ClassGuide:
    """Compute the Gram once, normalise it and choose scale and noise.

    Args:
        kernel: Kernel function of the guide.
        rows: Training inputs, ``(members, n, d)``.
        labels: Class numbers, ``(members, n)``.
        n_classes: Number of classes.
        likelihood: How labels become targets. As regression, scale and noise are those of the largest evidence.
        scale: Output scale that the student sees; None to have it chosen.
        seed: Of the random halvings.
        dtype: Precision of the algebra.
    """
    members, n, _ = rows.shape
    require_memory(
        6 * members * tensor_bytes(n, n, dtype=dtype),
        what=f"the guide's kernel matrix of {n} rows",
        remedy="Train on fewer rows.",
        device=rows.device,
    )
    gram = kernel.gram(rows).to(dtype)
    normaliser = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    if not bool((normaliser > 0).all()) or not bool(torch.isfinite(gram).all()):
        raise DataError("the guide's kernel has no positive finite variance on the training rows.")
    gram = gram / normaliser[..., None, None]
    targets = label_targets(labels, n_classes, likelihood, dtype)
    if likelihood is ClassLikelihood.GAUSSIAN:
        fit = fit_by_evidence(gram, targets.values, NOISE_START)
        # One pair for all classes: the geometric mean of theirs.
        own, noise = (value.log().mean(dim=-1).exp() for value in (fit.scale, fit.noise))
        trial = try_scales(gram, targets, labels, likelihood, own.unsqueeze(-1), noise, seed)
        multiple = 1.0
        trials = [trial]
    else:
        noise = torch.full_like(normaliser, NOISE_START)
        grid = torch.tensor(_SCALES, dtype=dtype, device=gram.device).expand(members, -1)
        parts = [targets.share(torch.full_like(normaliser, share)) for share in _SHARES]
        trials = [try_scales(gram, part, labels, likelihood, grid, noise, seed) for part in parts]
        multiple = STUDENT_MULTIPLE
    # (shares, members): the best scale for each share, and what it reaches.
    best = torch.stack([trial.log_likelihood.argmax(dim=-1) for trial in trials]).unsqueeze(-1)
    own, value, accuracy = (
        torch.stack(list(values)).gather(-1, best).squeeze(-1)
        for values in zip(*((trial.scales, trial.log_likelihood, trial.accuracy) for trial in trials), strict=True)
    )
    first = own[0]
    chosen = torch.where(value.amax(dim=0) > (1 - _CLEARLY) * value[0], value.argmax(dim=0), 0)
    own, value, accuracy = (values.gather(0, chosen[None]).squeeze(0) for values in (own, value, accuracy))
    share = torch.tensor(_SHARES, dtype=dtype, device=gram.device)[chosen]
    seen = multiple * first if scale is None else torch.full_like(own, scale)
    whole = trials[0]
    means = zip(whole.scales.mean(dim=0).tolist(), whole.log_likelihood.mean(dim=0).tolist(), strict=True)
    return ClassGuide(kernel, gram, normaliser, targets, seen, noise, own, share, value, accuracy, dict(means))


@dataclass(frozen=True)
class ScaleTrial:
    """What the guide alone says of held-out labels, by output scale; each ``(members, scales)``."""

    scales: Tensor
    log_likelihood: Tensor
    accuracy: Tensor


@torch.no_grad()
def try_scales(
    gram: Tensor,
    targets: LabelTargets,
    labels: Tensor,
    likelihood: ClassLikelihood,
    scales: Tensor,
    noise: Tensor,
    seed: int,
) -> ScaleTrial:
    """Log probability and accuracy on held-out halves, as the guide would predict: with the labels' own variances.

    Args:
        gram: Normalised, ``(members, n, n)``.
        targets: ``(members, classes, n)`` each.
        labels: ``(members, n)``.
        likelihood: How labels became targets.
        scales: Output scales to try, ``(members, scales)``.
        noise: ``(members,)``.
        seed: Of the halvings.
    """
    members = gram.shape[0]
    classes = targets.values.shape[-2]
    base = base_samples(_SAMPLES, classes, seed).to(gram)
    generator = torch.Generator().manual_seed(seed)
    scores = gram.new_zeros(2, members, scales.shape[-1])
    for _ in range(_SPLITS):
        split = _halves(labels, generator)
        K11, K21, k22 = _blocks(gram, split)
        y1 = take_targets(targets.values, split.observed)
        own_noise = take_targets(targets.noise, split.observed) + noise[:, None, None]
        y2 = labels.gather(-1, split.held_out)
        for index in range(scales.shape[-1]):
            s = scales[:, index, None, None]
            latents = _predict(s[..., None] * K11.unsqueeze(-3), s * K21, s.squeeze(-1) * k22, y1, own_noise)
            log_probs = class_log_probs(latents, likelihood, noise[:, None], base)
            scores[0, :, index] += log_probs.gather(-2, y2.unsqueeze(-2)).mean(dim=(-2, -1))
            scores[1, :, index] += (log_probs.argmax(dim=-2) == y2).to(gram).mean(dim=-1)
    scores /= _SPLITS
    return ScaleTrial(scales, scores[0], scores[1])


def _halves(labels: Tensor, generator: torch.Generator) -> Split:
    """Two halves of at most `_MOST_ROWS` rows, as many of each class in both up to one.

    In random halves a class that one has too many of is one that the other lacks, which no new row would suffer from.
    """
    members, n = labels.shape
    order = torch.rand(members, n, generator=generator).argsort(dim=-1)[:, :_MOST_ROWS].to(labels.device)
    by_class = labels.gather(-1, order).argsort(dim=-1, stable=True)
    order = order.gather(-1, by_class)
    return Split(order[:, 1::2], order[:, ::2])


def _predict(K11: Tensor, K21: Tensor, k22: Tensor, y1: Tensor, noise: Tensor) -> Marginals:
    """Latent marginals with a noise for every row: shapes ``(members, 1, n1, n1)``, ``(members, n2, n1)``, …."""
    classes, n2 = y1.shape[-2], k22.shape[-1]
    C = K11 + torch.diag_embed(noise)
    L = cholesky(C, name=_MATRIX_NAME)
    right = K21.mT.unsqueeze(-3).expand(-1, classes, -1, -1)
    solved = torch.linalg.solve_triangular(L, torch.cat([right, y1.unsqueeze(-1)], dim=-1), upper=False)
    A, v = solved[..., :n2], solved[..., n2:]
    prior = k22.unsqueeze(-2)
    return Marginals((A.mT @ v).squeeze(-1), floor_variance(prior - A.square().sum(dim=-2), prior))
