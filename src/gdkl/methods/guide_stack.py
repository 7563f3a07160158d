"""Several guides of one kernel, with priors on relevance of different width, and how each predicts held-out folds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gdkl import infinite
from gdkl.calibration import Folds, log_density, stack_weights
from gdkl.gp import ExactPosterior, ScaledKernel
from gdkl.guide import MATRIX_NAME, GuideKernel, RelevanceFit, as_kernel_function, fit_relevance, fit_relevance_folds
from gdkl.nets import ColumnScale, Members
from gdkl.training import FittedModel, TrainingData

#: Prior deviations of the log relevances: none, and two widths. No single one serves all tables and sizes, and a
#: mixture is better than the best of them.
DEVIATIONS = (0.0, 0.6, 1.5)

#: A smoother kernel beside the guide's, of which functions are differentiable: kin8nm and concrete gain by it.
SMOOTH, SMOOTH_DEVIATION = infinite.Sequential(infinite.Linear(weight_var=1.0), infinite.RBF(gamma=0.5)), 1.0

#: Steps of L-BFGS for all rows and for a fold; both begin at their own fit with the narrower prior.
_ITERATIONS, _FOLD_ITERATIONS = 60, 25


class GuideStack(NamedTuple):
    """Guides by name, and what they tell of the folds.

    Attributes:
        models: Conditioned on all rows.
        log_densities: Of the held-out targets, fold by fold, ``(models, outputs, rows)``.
        multipliers: Relevances of the columns without each fold, ``(folds, d)``: weighted means over the guides with
            the given kernel.
    """

    models: dict[str, FittedModel]
    log_densities: Tensor
    multipliers: Tensor


def fit_guides(
    data: TrainingData, kernel: GuideKernel, folds: Folds, *, smooth: bool, groups: Tensor | None, noise_floor: float
) -> GuideStack:
    """Fit each guide to all rows, and to the rows outside each fold.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides. Relevances are those of an infinite network; another kernel is taken as it is.
        folds: Held-out rows.
        smooth: Whether a guide with the smooth kernel stands beside them.
        groups: For each column the number of its group; a group shares a relevance.
        noise_floor: Smallest noise variance.
    """
    rows, targets = data.rows[0].double(), data.targets[0].double()
    models, densities, logs = dict[str, FittedModel](), list[Tensor](), list[Tensor]()
    fit, refits = None, list[RelevanceFit]()
    for name, own, deviation in _guides(kernel, smooth):
        prior: dict[str, Any] = {"deviation": deviation, "groups": groups, "noise_floor": noise_floor}
        follows = fit is not None and fit.kernel is own
        fit = fit_relevance(own, rows, targets, start=fit if follows else None, iterations=_ITERATIONS, **prior)
        starts = refits if follows else None
        refits = fit_relevance_folds(own, rows, targets, folds.used, starts, iterations=_FOLD_ITERATIONS, **prior)
        predicted = [
            log_density(one.predict(rows[used], targets[:, used], rows[out]), targets[:, out])
            for one, out, used in zip(refits, *folds, strict=True)
        ]
        densities.append(torch.cat(predicted, dim=-1))
        models[name] = _model(data, fit)
        if own is kernel:
            logs.append(torch.stack([one.multipliers.log() for one in refits]))
    weights = stack_weights(torch.stack(densities[: len(logs)])).mean(dim=-1)
    multipliers = torch.tensordot(weights, torch.stack(logs), dims=1).exp()
    return GuideStack(models, torch.stack(densities).to(data.targets), multipliers.to(data.rows))


def _guides(kernel: GuideKernel, smooth: bool) -> Iterator[tuple[str, GuideKernel, float | None]]:
    """Name, kernel and prior deviation of each guide; those of the given kernel first, from narrow to wide."""
    if isinstance(kernel, infinite.InfiniteNetwork):
        yield from (
            (f"guide {deviation:g}" if deviation else "isotropic guide", kernel, deviation) for deviation in DEVIATIONS
        )
    else:
        yield "guide", kernel, None
    if smooth:
        yield "smooth guide", SMOOTH, SMOOTH_DEVIATION


def _model(data: TrainingData, fit: RelevanceFit) -> FittedModel:
    """A guide conditioned on all rows."""
    embed = nn.Identity()
    if isinstance(fit.kernel, infinite.InfiniteNetwork):
        embed = Members([ColumnScale(fit.multipliers.to(data.rows))]).eval()
    one = data.targets.new_ones(1, data.outputs)
    kernel = ScaledKernel(as_kernel_function(fit.kernel), fit.scale / fit.normaliser * one)
    return FittedModel(
        embed,
        ExactPosterior.condition(kernel, embed(data.rows), data.targets, fit.noise * one, name=MATRIX_NAME),
    )
