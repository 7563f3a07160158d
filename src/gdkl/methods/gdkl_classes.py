"""Guided deep kernel learning of labels: a deep kernel a class over shared features, guided over random splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from gdkl.gp import (
    ClassLikelihood,
    ExactPosterior,
    Marginals,
    Split,
    squared_distances,
    take_rows,
)
from gdkl.guide import Guide
from gdkl.methods.class_data import ClassData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions, train_deep_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.methods.gdkl import guided_splits
from gdkl.numerics import OptionError, tensor_bytes
from gdkl.objectives import ObjectiveValue, gaussian_term, guided, predictive_label_term
from gdkl.training import SplitSampler

#: Base samples of the data term, drawn afresh at each step.
TRAINING_SAMPLES = 256

#: Recombined rows that are made for each training row, and at most: the guide's Gram grows with their square.
_RECOMBINED_A_ROW = 4
_MOST_RECOMBINED = 2000


def image_beta(n: int, *, augmented: bool = False) -> float:
    """Weight of the guide for this many labelled images: 3 for few of them, less where the student knows better.

    On images of CIFAR-10 that no result is made of, β = 3 is better than 1 with 100 and 200 images, as good with 400,
    and worse with 800; where the student sees them altered at every step, twice as much is: docs/reproduction.md.

    Args:
        n: Number of images.
        augmented: Whether they are moved and mirrored at random in training.

    Example:
        >>> [image_beta(n) for n in (50, 200, 400, 800)], image_beta(400, augmented=True)
        ([3.0, 3.0, 2.0, 1.0], 4.0)
    """
    return (2.0 if augmented else 1.0) * min(3.0, 800.0 / n)


def fit_gdkl_classes(
    data: ClassData,
    guide: Guide,
    options: DeepKernelOptions,
    *,
    beta: float = 1.0,
    start_at_guide: bool = True,
    stratified: bool = True,
    rows_a_step: int | None = None,
    recombined: bool = False,
    both_ways: bool = False,
) -> FittedModel:
    """Train a deep kernel a class to match what the guide believes about held-out rows once their labels are seen.

    In training the posteriors of guide and student carry the learned noise alone; the variance that each label
    carries comes in for prediction.

    Args:
        data: Scaled training data.
        guide: Fitted on the same rows, shared by all members.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        start_at_guide: Whether the default kernel starts from the guide's scale and the features' distances, see
            `start_from`; if not, from the values that kernels have anyway, as published.
        stratified: Whether both halves of a split have as many rows of each class; if not, splits are random, as
            published.
        rows_a_step: Rows that a split has at most, half of them observed; None for all.
        recombined: Whether the guide is followed on rows put together from two training rows too, see `recombine`.
            Not for regression on ±1.
        both_ways: Whether each half is held out in turn, for one pass of the network. Not with recombined rows, nor for
            regression on ±1.
    """
    device = data.rows.device
    if both_ways and (recombined or data.likelihood is ClassLikelihood.GAUSSIAN):
        raise OptionError("both_ways goes with the Dirichlet likelihood, and without recombined rows.")
    everything, further = data.rows, 0
    if recombined and data.likelihood is not ClassLikelihood.GAUSSIAN:
        own = data.rows[: guide.gram.shape[0]]
        further = min(_MOST_RECOMBINED, _RECOMBINED_A_ROW * data.n)
        own = torch.cat([own, recombine(own, further, options.seed)], dim=1)
        guide = guide.with_rows(own)
        everything = own.expand(data.members, -1, -1)
    used = data.n if rows_a_step is None else min(data.n, rows_a_step)

    def make_loss(model: DeepKernel) -> Callable[[int], ObjectiveValue]:
        labels = data.labels if stratified else None
        sampler = SplitSampler(
            data.n, data.members, options.seed, device, labels=labels, most=rows_a_step, further=further
        )
        generator = torch.Generator(device).manual_seed(options.seed)
        ahead: Iterator[tuple[Split, Marginals]] | None = None

        def draw() -> Tensor:
            shape = (TRAINING_SAMPLES, data.outputs)
            return torch.randn(shape, generator=generator, dtype=data.targets.dtype, device=device)

        def loss(step: int) -> ObjectiveValue:
            nonlocal ahead
            if ahead is None:
                # The first step that is asked for is a later one in a resumed run: leave out what it has seen.
                ahead = guided_splits(replace(guide, symmetric_splits=both_ways), sampler, start=step)
                for _ in range(step):
                    draw()
            split, p = next(ahead)
            if data.likelihood is ClassLikelihood.GAUSSIAN:
                q, y, noise = model.split_marginals(data, split)
                return guided(q, p, gaussian_term(q, y, noise), beta)
            if both_ways:
                q = model.both_ways(everything, data.targets, split, model.noise())
                labels = data.labels_of(torch.cat(split[::-1], dim=-1))
            else:
                q = model.marginals(everything, data.targets, split, model.noise())
                labels = data.labels_of(split.held_out[..., : used - used // 2])
            return guided(q, p, predictive_label_term(q, labels, draw()), beta)

        return loss

    labelled = used if both_ways else used // 2 + 1
    latents = tensor_bytes(3, TRAINING_SAMPLES, data.outputs, labelled, dtype=data.targets.dtype)
    return train_deep_kernel(
        data,
        options,
        make_loss,
        guided=True,
        rows_a_step=used,
        more_bytes=data.members * latents,
        start=(lambda model: start_from(model, data, guide.scale)) if start_at_guide else None,
        finish=lambda model, features: condition_classes(model, features, data, guide.label_noise_factor),
    )


def recombine(rows: Tensor, count: int, seed: int) -> Tensor:
    """New rows near the given ones: each takes every column from one of two random rows, by a coin a column.

    A column keeps the values that it has, categories among them. What the guide believes of such rows costs no label,
    and a student that follows it there does not drift from it between the rows that it has seen. On tuning splits of
    wine and breast cancer a student's KL from its guide is 1.5 to 3 times as large at test rows as at the training rows
    it was held to.

    Args:
        rows: ``(members, n, d)``.
        count: How many new rows for each member.
        seed: Of the pairs and coins; drawn on the CPU, the same everywhere.
    """
    members, n, columns = rows.shape
    generator = torch.Generator().manual_seed(seed)
    parents = torch.randint(n, (2, members, count), generator=generator).to(rows.device)
    coin = torch.rand(members, count, columns, generator=generator, dtype=torch.float32) < 0.5
    return torch.where(coin.to(rows.device), take_rows(rows, parents[0]), take_rows(rows, parents[1]))


def condition_classes(
    model: DeepKernel, features: Tensor, data: ClassData, noise_factor: Tensor | None = None
) -> ExactPosterior:
    """The trained deep kernel conditioned on all rows, with the variances that the labels carry, times a factor."""
    label_noise = data.label_noise if noise_factor is None else data.label_noise * noise_factor[:, None, None]
    return ExactPosterior.condition(
        model.kernel, features, data.targets, model.noise(), row_noise=label_noise, name="the deep kernel's matrix"
    )


@torch.no_grad()
def start_from(model: DeepKernel, data: ClassData, scale: Tensor) -> None:
    """Give the default kernel first values that fit: the guide's output scale, the features' typical distance.

    Latent targets lie between −7 and 0, and an untrained network's features close together; from values of about one,
    hundreds of steps would go by before either is right. A kernel of the user's own keeps its values.

    With a wide ResNet and 200 images of CIFAR-10 both starts end alike: after 500 steps of a small one at a test
    log-likelihood of -2.04 from here and -2.05 from the usual values; after 150 at -2.15 and -2.06.
    """
    kernel = model.kernel.kernel
    if not isinstance(kernel, ScaleKernel) or not isinstance(kernel.base_kernel, RBFKernel):
        return
    # As training will see them, which for an untrained batch norm is nothing like evaluation; on a copy, whose
    # statistics are thrown away.
    features = deepcopy(model.network).train()(data.rows)
    # Two distinct rows of n(n − 1) ordered pairs.
    mean_distance = squared_distances(features).sqrt().sum(dim=(-2, -1)) / (data.n * (data.n - 1))
    lengthscale = mean_distance.clamp_min(1e-3)[:, None, None, None].expand_as(kernel.base_kernel.lengthscale)
    kernel.base_kernel.initialize(lengthscale=lengthscale.clone())
    kernel.initialize(outputscale=scale.expand_as(kernel.outputscale).clone())
