"""Guided deep kernel learning: deep kernel + guide + guided objective over random splits."""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.gp import NOISE_START, Marginals, Split, take_noise, take_rows, take_targets
from gdkl.guide import Guide
from gdkl.nets import surround
from gdkl.objectives import ObjectiveValue, SplitObjective, distillation, gaussian_term, guided, kl_term, predictive
from gdkl.training import DeepKernel, FittedModel, GuidedSplits, SplitSampler, StudentOptions, TrainingData, fit_exact

#: Points without labels that a step sees, and how many they are drawn from.
_POINTS, _POINTS_DRAWN = 64, 512


def guided_noise_start(guide: Guide) -> Tensor:
    """Where the student's noise starts, ``(members, outputs)``: the guide's noise, and no less than the published."""
    return guide.noise.clamp_min(NOISE_START).cpu()


def fit_gdkl(
    data: TrainingData,
    guide: Guide,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    mu: float = 0.0,
    objective: SplitObjective = SplitObjective.GUIDED,
    used: Tensor | None = None,
    rows_per_step: int | None = None,
) -> FittedModel:
    """Train a deep kernel to match the guide's posterior at held-out rows once their labels are seen.

    At a row with a label the student's latent variance ends below βσ², wherever the row is. What the guide believes at
    points between and around the rows, which have none, keeps it honest there.

    Args:
        data: Scaled training data.
        guide: Of the same rows, for all members or one shared by all; with ``used``, fitted to those alone.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        mu: Weight of the KL term at points without labels; 0 for none, as published.
        objective: What is minimised over the splits.
        used: Rows that each member is trained on, ``(members, k)``; None for all. The model is conditioned on all rows.
        rows_per_step: Rows that a split has at most, half of them observed; None for all.
    """
    points, rows = (_POINTS if mu else 0), data.rows
    if points:
        own = rows[: len(guide.scale)]
        known = own if used is None else take_rows(own, used[: len(own)])
        own = torch.cat([own, surround(known, _POINTS_DRAWN, options.seed)], dim=1)
        guide, rows = guide.with_rows(own), own.repeat(data.members // len(own), 1, 1)
    elif used is not None:
        guide = guide.with_rows(rows[: len(guide.scale)])

    def loss(student: DeepKernel, data: TrainingData, split: Split, p: Marginals, rows: Tensor) -> ObjectiveValue:
        noise = data.row_noise(student.noise())
        q = student.marginals(rows, data.targets, split, noise)
        labelled = q.mean.shape[-1] - points
        (q, q_free), (p, p_free) = q.divide(labelled), p.divide(labelled)
        held_out = split.held_out[..., :labelled]
        y, noise = take_targets(data.targets, held_out), take_noise(noise, held_out)
        if objective is SplitObjective.DISTILLATION:
            return distillation(q, p)
        if objective is SplitObjective.PREDICTIVE:
            return predictive(q, y, noise)
        further = {"kl_unlabelled": (kl_term(q_free, p_free), mu)} if points else {}
        return guided(q, p, gaussian_term(q, y, noise), beta, **further)

    sampler = SplitSampler(
        data.n if used is None else used.shape[-1],
        data.members,
        options.seed,
        data.rows.device,
        most=rows_per_step,
        further=range(data.n, data.n + _POINTS_DRAWN) if points else None,
        further_each=points,
        rows=used,
    )
    splits = GuidedSplits(guide, sampler, pool=options.split_pool)
    return fit_exact(data, options, loss, lambda step: (*splits(step), rows), rows_per_step=sampler.used)
