"""GDKL as one stack: guides of several priors + guided students, weighted and calibrated on held-out folds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from gdkl.calibration import (
    draw_folds,
    fit_noise_factor,
    fold_by_fold,
    log_density,
    most_probable_noise,
    outlier_share,
    share_weights,
    stack_weights,
    widened,
)
from gdkl.gp import ExactPosterior, Marginals
from gdkl.guide import GuideKernel, as_kernel_function, fit_guide
from gdkl.methods.gdkl import fit_gdkl, guided_noise_start
from gdkl.methods.guide_stack import fit_guides
from gdkl.nets import ColumnScale, Members, with_columns
from gdkl.training import MATRIX_NAME, FittedModel, Stack, StudentOptions, TrainingData

STUDENT = "student"


def fit_stacked_gdkl(
    data: TrainingData,
    kernel: GuideKernel,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    mu: float = 1.0,
    times: int = 1,
    smooth: bool = True,
    groups: Tensor | None = None,
    guide_share: float | None = None,
    rows_per_step: int | None = None,
    little_noise: bool = False,
) -> Stack:
    """Fit guides to all rows and without each fold, train a student beside the guides of each fold, and weigh them all.

    A student learns the rows outside its fold, predicts those inside, and is then conditioned on all rows. So the
    students are an ensemble, and every row is held out from one of them: held-out rows set weights and noise.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides.
        options: How students are built and trained.
        beta: Weight of the guide at rows with labels.
        mu: Weight of the guide at points without.
        times: Networks per fold.
        smooth: Whether a guide with a smoother kernel stands beside them.
        groups: For each column the number of its group; a group shares a relevance.
        guide_share: Weight of all guides together; None for the weights that held-out rows set.
        rows_per_step: Rows that a student's split has at most; None for all.
        little_noise: Whether a prior on the guides' noise says that targets are nearly exact.
    """
    priors: dict[str, Any] = {"noise_floor": options.noise_floor, "little_noise": little_noise}
    folds = draw_folds(data.rows[0], options.seed)
    guides = fit_guides(data, kernel, folds, smooth=smooth, groups=groups, **priors)
    factor = fit_noise_factor(data, guides.held_out, folds, kernel, guides.multipliers.log().mean(dim=0).exp())
    fold_data = data.repeat(len(folds.used))
    fold_data = replace(fold_data, rows=Members([ColumnScale(one) for one in guides.multipliers])(fold_data.rows))
    used, out = (fold_data.take_each(index) for index in (folds.used, folds.held_out))
    guide = fit_guide(as_kernel_function(kernel), **used.all_arguments(), **priors)
    if options.noise_start is None:
        options = replace(options, noise_start=guided_noise_start(guide).repeat(times, 1))
    guide = replace(guide, targets=fold_data.targets, label_noise=fold_data.further_noise(guide.noise))
    used_rows = folds.used.repeat(times, 1)
    model = fit_gdkl(
        fold_data.repeat(times), guide, options, beta=beta, mu=mu, used=used_rows, rows_per_step=rows_per_step
    )
    q = _held_out(model, used.repeat(times), out.repeat(times), times)
    if factor is not None:
        guides, out = guides.with_factor(factor), out.scale_noise(factor.held_out)
    scale, added = (fold_by_fold(value) for value in out.noise_parts(torch.ones_like(out.targets[..., 0])))
    q, y = Marginals(q.mean, q.variance + added), fold_by_fold(out.targets)
    mean, variance, targets, scales = (fold_by_fold(value.expand_as(q.mean))[None] for value in (*q, y, scale))
    noise = most_probable_noise(Marginals(mean, variance), targets, options.noise_floor, scales)
    model.predictive_noise = noise.expand_as(model.noise)
    model.embed = with_columns(cast(Members, model.embed), guides.multipliers)
    known = guides.held_out

    def densities(widen: Callable[[Tensor], Tensor]) -> Tensor:
        """Of held-out targets under each model, ``(models, outputs, rows)``."""
        own = log_density(Marginals(q.mean, widen(q.variance + noise.mT * scale)), y).logsumexp(dim=0) - math.log(times)
        others = log_density(Marginals(known.mean, widen(known.variance + known.noise)), y)
        return torch.cat([others.to(y), own[None]])

    plain = densities(lambda variance: variance)
    weights, log_noise = stack_weights(plain), None if factor is None else factor.model
    if guide_share == 0:
        return Stack({STUDENT: model}, torch.ones_like(weights[:1]), log_noise)
    weights = share_weights(weights, guide_share)
    mixed = ((value + weights.log().unsqueeze(-1)).logsumexp(dim=0) for value in (plain, densities(widened)))
    return Stack(guides.models | {STUDENT: model}, weights, log_noise, outliers=outlier_share(*mixed))


def _held_out(model: FittedModel, used: TrainingData, out: TrainingData, times: int) -> Marginals:
    """Latent marginals of held-out rows given the others of their folds, ``(times, outputs, folds · rows)``."""
    known, rows, own = model.posterior, model.embed(used.rows), used.further_noise(model.posterior.noise)
    posterior = ExactPosterior.condition(known.kernel, rows, used.targets, known.noise, row_noise=own, name=MATRIX_NAME)
    q = posterior.marginals(model.embed(out.rows))
    return Marginals(*(value.unflatten(0, (times, -1)).transpose(1, 2).flatten(2) for value in q))
