"""GDKL of classes as one stack: guides of several priors + guided students, weighted and tempered by held-out folds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from gdkl.calibration import (
    PRIOR_DEVIATION,
    best_temperature,
    draw_folds,
    mix_classes,
    share_weights,
    stack_weights,
)
from gdkl.gp import PREDICTION_SAMPLES, ExactPosterior, base_samples, take_rows
from gdkl.guide import GuideKernel, fit_site_guide
from gdkl.methods.class_guides import ClassGuides, fit_class_guides, label_sites, latent_log_probs
from gdkl.methods.gdkl_classes import fit_gdkl_classes
from gdkl.methods.stacked_gdkl import STUDENT
from gdkl.nets import ColumnScale, Members, with_columns
from gdkl.training import MATRIX_NAME, ClassData, FittedModel, Stack, StudentOptions


class ClassStack(NamedTuple):
    """A mixture, and the temperature of its log probabilities."""

    stack: Stack
    temperature: float


def fit_stacked_classes(
    data: ClassData,
    kernel: GuideKernel,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    times: int = 1,
    rows_per_step: int | None = None,
    recombined: Sequence[int] = (),
    groups: Tensor | None = None,
    guide_share: float | None = None,
) -> ClassStack:
    """Fit guides to all rows and without each fold, train a student beside the guides of each fold, and weigh them all.

    Each model predicts the folds that it has not learned: they set its temperature, then the weights, then the
    temperature of the mixture.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides.
        options: How students are built and trained; predictions take their seed, too.
        beta: Weight of the guide.
        times: Networks per fold.
        rows_per_step: Rows that a split has at most; None for all.
        recombined: As for `fit_gdkl_classes`.
        groups: For each column the number of its group; a group shares a relevance.
        guide_share: Weight of all guides together; None for the weights that held-out rows set.
    """
    folds = draw_folds(data.rows[0], options.seed)
    samples = base_samples(PREDICTION_SAMPLES, data.outputs, options.seed)
    guides = fit_class_guides(data, kernel, folds, samples, groups)
    multipliers = torch.stack([fit.multipliers for fit in guides.parts]).to(data.rows)
    rows = Members([ColumnScale(factors) for factors in multipliers])(data.repeat(len(multipliers)).rows)
    used, labels = take_rows(rows, folds.used), data.labels[0, folds.used]
    guide = fit_site_guide(guides.parts, used, labels, data.outputs)
    targets, noise = guide.targets.to(data.targets), cast(Tensor, guide.label_noise).to(data.targets)
    known = ClassData(used, targets, noise.expand_as(targets), labels, data.likelihood)
    model = fit_gdkl_classes(
        known.repeat(times), guide, options, beta=beta, rows_per_step=rows_per_step, recombined=recombined
    )
    log_probs = torch.cat([guides.log_probs, _held_out(model, take_rows(rows, folds.held_out), samples, times)])
    labels = data.labels[0, folds.held_out.flatten()]
    temperatures = torch.tensor([best_temperature(own, labels, deviation=PRIOR_DEVIATION) for own in log_probs])
    weights = _weights(log_probs, labels, temperatures, guide_share)
    mixture = mix_classes(log_probs, weights[:, 0], temperatures)
    _condition(model, data, guides, rows.repeat(times, 1, 1))
    model.embed = with_columns(cast(Members, model.embed), multipliers)
    stack = Stack(guides.models | {STUDENT: model}, weights, temperatures=temperatures)
    if guide_share == 0:
        stack = Stack({STUDENT: model}, weights[-1:], temperatures=temperatures[-1:])
    return ClassStack(stack, best_temperature(mixture, labels, deviation=PRIOR_DEVIATION))


def _held_out(model: FittedModel, rows: Tensor, samples: Tensor, times: int) -> Tensor:
    """Log probabilities ``(1, classes, folds · rows)`` of the mean over the networks of a fold."""
    found = latent_log_probs(model, rows.repeat(times, 1, 1), samples).unflatten(0, (times, -1))
    return (found.logsumexp(dim=0) - math.log(times)).transpose(0, 1).flatten(1)[None]


def _weights(log_probs: Tensor, labels: Tensor, temperatures: Tensor, share: float | None) -> Tensor:
    tempered = torch.log_softmax(log_probs / temperatures.to(log_probs)[:, None, None], dim=1)
    return share_weights(stack_weights(tempered.gather(1, labels.expand(len(tempered), 1, -1))), share)


def _condition(model: FittedModel, data: ClassData, guides: ClassGuides, rows: Tensor) -> None:
    """Condition the students on the sites of all rows."""
    sites, own = label_sites(data, guides.whole), cast(ExactPosterior, model.posterior)
    values, noise = (value.expand(len(rows), -1, -1) for value in sites.label_targets)
    model.posterior = ExactPosterior.condition(
        own.kernel, model.embed(rows), values, own.noise, row_noise=noise, name=MATRIX_NAME
    )
