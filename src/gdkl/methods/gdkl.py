"""Guided deep kernel learning: deep kernel + guide + guided objective over random splits."""

from __future__ import annotations

from torch import Tensor

from gdkl.gp import NOISE_START, Marginals, Split
from gdkl.guide import Guide
from gdkl.objectives import ObjectiveValue, SplitObjective, distillation, gaussian_term, guided, predictive
from gdkl.training import (
    DeepKernel,
    DelayedRows,
    FittedModel,
    GuidedSplits,
    SplitSampler,
    StudentOptions,
    TrainingData,
    fit_exact,
)


def guided_noise_start(guide: Guide) -> Tensor:
    """Where the student's noise starts, ``(members, outputs)``: the guide's noise, and no less than the published."""
    return guide.noise.clamp_min(NOISE_START).cpu()


def fit_gdkl(
    data: TrainingData,
    guide: Guide,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    objective: SplitObjective = SplitObjective.GUIDED,
    delayed: DelayedRows | None = None,
) -> FittedModel:
    """Train a deep kernel to match the guide's posterior at held-out rows once their labels are seen.

    Args:
        data: Scaled training data.
        guide: Fitted on the same rows, for all members or one shared by all.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        objective: What is minimised over the splits.
        delayed: Rows that join training at a step.
    """

    def loss(student: DeepKernel, data: TrainingData, split: Split, p: Marginals) -> ObjectiveValue:
        q, y, noise = student.split_marginals(data, split)
        if objective is SplitObjective.GUIDED:
            return guided(q, p, gaussian_term(q, y, noise), beta)
        return distillation(q, p) if objective is SplitObjective.DISTILLATION else predictive(q, y, noise)

    sampler = SplitSampler(data.n, data.members, options.seed, data.rows.device)
    splits = GuidedSplits(guide, sampler, pool=options.split_pool, delayed=delayed)
    return fit_exact(data, options, loss, splits, delayed=delayed)
