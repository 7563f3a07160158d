"""Guided deep kernel learning: deep kernel + guide + guided objective over random splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from gdkl.gp import Marginals, Split, take_targets
from gdkl.guide import ClassGuide, Guide
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions, matrix_bytes, train_deep_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.numerics import rows_per_chunk
from gdkl.objectives import ObjectiveValue, distillation, guided, predictive
from gdkl.training import SplitSampler

#: The guide's posteriors for at most this many coming splits are computed in one batched call.
_SPLITS_AHEAD = 64


class SplitObjective(StrEnum):
    """Objectives over random splits, as the paper compares them."""

    GUIDED = "guided"
    """E_q[−log p(y|f)] + β·KL(q‖p): what GDKL is."""
    DISTILLATION = "distillation"
    """KL(q‖p) alone: the student imitates the guide."""
    PREDICTIVE = "predictive"
    """−log q(y|x, D1) alone: no guide, overfits."""


def fit_gdkl(
    data: TrainingData,
    guide: Guide,
    options: DeepKernelOptions,
    *,
    beta: float = 1.0,
    objective: SplitObjective = SplitObjective.GUIDED,
) -> FittedModel:
    """Train a deep kernel to match what the guide believes about held-out rows once their labels are seen.

    Args:
        data: Scaled training data.
        guide: Fitted on the same rows, for all members or one shared by all.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        objective: What is minimised over the splits.
    """

    def make_loss(model: DeepKernel) -> Callable[[int], ObjectiveValue]:
        sampler = SplitSampler(data.n, data.members, options.seed, data.rows.device)
        ahead: Iterator[tuple[Split, Marginals]] | None = None

        def loss(step: int) -> ObjectiveValue:
            nonlocal ahead
            # Made at the first step that is asked for, which in a resumed run is a later one.
            ahead = ahead or guided_splits(guide, sampler, start=step)
            split, p = next(ahead)
            q = model.split_marginals(data, split)
            y = take_targets(data.targets, split.held_out)
            if objective is SplitObjective.GUIDED:
                return guided(q, p, y, model.noise(), beta)
            if objective is SplitObjective.DISTILLATION:
                return distillation(q, p)
            return predictive(q, y, model.noise())

        return loss

    # K11, K21, the factor and the solve, each with a gradient of its size.
    step_bytes = matrix_bytes(data, data.n // 2 + 1, count=12)
    return train_deep_kernel(data, options, make_loss, train_bytes=step_bytes)


def guided_splits(
    guide: Guide | ClassGuide, sampler: SplitSampler, start: int = 0
) -> Iterator[tuple[Split, Marginals]]:
    """Endless splits with the guide's marginals on each, computed for many splits at a time.

    Args:
        guide: Says what it believes about each split's held-out rows.
        sampler: Draws the splits.
        start: Splits to leave out at the beginning: those of steps that a resumed run has taken.
    """
    per_split = guide.bytes_per_split() * max(1, sampler.members // guide.gram.shape[0])
    count = min(_SPLITS_AHEAD, rows_per_chunk(per_split))
    while start >= count:
        sampler.draw(count)
        start -= count
    while True:
        splits = sampler.draw(count)
        p = guide.posterior(splits)
        for index in range(start, count):
            yield (
                Split(splits.observed[index], splits.held_out[index]),
                Marginals(p.mean[index], p.variance[index]),
            )
        start = 0
