"""Guided deep kernel learning of labels: one deep kernel per class over shared features, guided over random splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, Marginals, Split, start_kernel
from gdkl.guide import Guide
from gdkl.nets import recombine
from gdkl.numerics import OptionError, tensor_bytes
from gdkl.objectives import ObjectiveValue, gaussian_term, guided, predictive_label_term
from gdkl.training import (
    ClassData,
    DeepKernel,
    FittedModel,
    GuidedSplits,
    SplitSampler,
    StudentOptions,
    fit_exact,
    step_generator,
    training_features,
)

#: Base samples of the data term, drawn afresh at each step.
TRAINING_SAMPLES = 256

#: Recombined rows for each training row, and at most: the guide's Gram grows with their square.
_RECOMBINED_PER_ROW, _MOST_RECOMBINED = 4, 2000


def fit_gdkl_classes(
    data: ClassData,
    guide: Guide,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    start_at_guide: bool = True,
    stratified: bool = True,
    rows_per_step: int | None = None,
    recombined: Sequence[int] = (),
    symmetric: bool = False,
) -> FittedModel:
    """Train one deep kernel per class to match the guide's posterior at held-out rows once their labels are seen.

    In training the posteriors of guide and student carry the learned noise alone, unless the guide says otherwise; the
    variance that each label carries comes in for prediction.

    Args:
        data: Scaled training data.
        guide: Fitted on the same rows, shared by all members.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        start_at_guide: Whether the default kernel starts from the guide's output scale and the features' typical
            distance: latent targets lie between −7 and 0, and from values of about one, hundreds of steps would go by
            before either is right. If not, from the usual values, as published.
        stratified: Whether both halves of a split have as many rows of each class; if not, splits are random, as
            published.
        rows_per_step: Rows that a split has at most, half of them observed; None for all.
        recombined: The group of each column, if the guide is followed at recombined rows too, see
            `gdkl.nets.recombine`. Not for regression on ±1.
        symmetric: Whether each half is held out in turn, for one pass of the network. Not with recombined rows, nor
            for regression on ±1.
    """
    gaussian = data.likelihood is ClassLikelihood.GAUSSIAN
    if symmetric and (recombined or gaussian):
        raise OptionError("symmetric splits need the Dirichlet likelihood, and no recombined rows.")
    rows, further, device, times = data.rows, None, data.rows.device, data.members // len(guide.scale)
    if recombined and not gaussian:
        count = min(_MOST_RECOMBINED, _RECOMBINED_PER_ROW * data.n)
        further = range(data.n, data.n + count)
        own = data.rows[: len(guide.scale)]
        own = torch.cat([own, recombine(own, count, options.seed, recombined)], dim=1)
        guide, rows = guide.with_rows(own), own.repeat(times, 1, 1)
    used = data.n if rows_per_step is None else min(data.n, rows_per_step)

    def inputs(step: int) -> tuple[Split | Marginals | Tensor, ...]:
        generator = step_generator(options.seed, step, device)
        samples = torch.randn(TRAINING_SAMPLES, data.outputs, generator=generator, dtype=dtype, device=device)
        # Samples are the same for all members.
        return *splits(step), samples.expand(data.members, -1, -1), rows

    def loss(student: DeepKernel, data: ClassData, split: Split, p: Marginals, *drawn: Tensor) -> ObjectiveValue:
        (samples, rows), noise = drawn, student.noise()
        if gaussian:
            held_out = student.split_marginals(data, split)
            return guided(held_out.q, p, gaussian_term(*held_out), beta)
        if symmetric:
            q, labelled = student.symmetric_marginals(rows, data.targets, split, noise), torch.cat(split[::-1], dim=-1)
        else:
            own = noise.unsqueeze(-1) + data.label_noise if guide.split_label_noise else noise
            q, labelled = student.marginals(rows, data.targets, split, own), split.held_out[..., : used - used // 2]
        return guided(q, p, predictive_label_term(q, data.labels_of(labelled), samples[0]), beta)

    dtype, labels = data.targets.dtype, data.labels if stratified else None
    sampler = SplitSampler(
        data.n, data.members, options.seed, device, labels=labels, most=rows_per_step, further=further
    )
    splits = GuidedSplits(replace(guide, symmetric_splits=symmetric), sampler)
    labelled = used if symmetric else used // 2 + 1
    return fit_exact(
        data,
        options,
        loss,
        inputs,
        rows_per_step=used,
        more_bytes=data.members * tensor_bytes(3, TRAINING_SAMPLES, data.outputs, labelled, dtype=dtype),
        start=(lambda student: start_at(student, data, guide.scale.repeat(times, 1))) if start_at_guide else None,
        row_noise=data.label_noise * guide.label_noise_factor[:, None, None],
    )


def start_at(student: DeepKernel, data: ClassData, scale: Tensor) -> None:
    """Start the default kernel at an output scale and at the features' typical distance, as training sees them."""
    start_kernel(student.kernel, training_features(student.network, data.rows), scale)
