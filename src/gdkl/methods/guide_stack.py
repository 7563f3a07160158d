"""Several guides of one kernel, with priors on relevance of different width, and how each predicts held-out folds."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gdkl.calibration import Folds, log_density, stack_weights
from gdkl.gp import ExactPosterior, ScaledKernel
from gdkl.guide import MATRIX_NAME, GuideKernel, RelevanceFit, as_kernel_function, fit_relevance, fit_relevance_folds
from gdkl.infinite import InfiniteNetwork
from gdkl.nets import ColumnScale, Members
from gdkl.training import FittedModel, TrainingData

#: Prior deviations of the log relevances: none, and three widths. No single one serves all tables and sizes, and a
#: mixture of the four is better than the best of them (docs/results/tables.md).
DEVIATIONS = (0.0, 0.5, 1.0, 1.5)

#: Steps of L-BFGS for all rows, which begins at the fit with the narrower prior, and for a fold, which begins there.
_ITERATIONS, _FOLD_ITERATIONS = 60, 8


class GuideStack(NamedTuple):
    """Guides by name, and what they tell of the folds.

    Attributes:
        models: Conditioned on all rows.
        log_densities: Of the held-out targets, fold by fold, ``(models, outputs, rows)``.
        multipliers: Relevances of the columns without each fold, ``(folds, d)``: weighted means over the guides.
    """

    models: dict[str, FittedModel]
    log_densities: Tensor
    multipliers: Tensor


def fit_guides(
    data: TrainingData, kernel: GuideKernel, folds: Folds, *, groups: Tensor | None, noise_floor: float
) -> GuideStack:
    """Fit each guide to all rows, and from there to the rows outside each fold.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides. Relevances are those of an infinite network; another kernel is taken as it is.
        folds: Held-out rows.
        groups: For each column the number of its group; a group shares a relevance.
        noise_floor: Smallest noise variance.
    """
    rows, targets = data.rows[0].double(), data.targets[0].double()
    models, densities, logs = dict[str, FittedModel](), list[Tensor](), list[Tensor]()
    fit: RelevanceFit | None = None
    for deviation in DEVIATIONS if isinstance(kernel, InfiniteNetwork) else (None,):
        prior: dict[str, Any] = {"deviation": deviation, "groups": groups, "noise_floor": noise_floor}
        fit = fit_relevance(kernel, rows, targets, start=fit, iterations=_ITERATIONS, **prior)
        refits = fit_relevance_folds(fit, rows, targets, folds.used, iterations=_FOLD_ITERATIONS, **prior)
        predicted = [
            log_density(one.predict(rows[used], targets[:, used], rows[out]), targets[:, out])
            for one, out, used in zip(refits, *folds, strict=True)
        ]
        densities.append(torch.cat(predicted, dim=-1))
        logs.append(torch.stack([one.multipliers.log() for one in refits]))
        models[f"guide {deviation:g}" if deviation is not None else "guide"] = _model(data, fit)
    log_densities = torch.stack(densities)
    weights = stack_weights(log_densities).mean(dim=-1)
    multipliers = torch.tensordot(weights, torch.stack(logs), dims=1).exp()
    return GuideStack(models, log_densities.to(data.targets), multipliers.to(data.rows))


def _model(data: TrainingData, fit: RelevanceFit) -> FittedModel:
    """A guide conditioned on all rows."""
    embed = Members([ColumnScale(fit.multipliers.to(data.rows))]).eval()
    one = data.targets.new_ones(1, data.outputs)
    kernel = ScaledKernel(as_kernel_function(fit.kernel), fit.scale / fit.normaliser * one)
    return FittedModel(
        embed,
        ExactPosterior.condition(kernel, embed(data.rows), data.targets, fit.noise * one, name=MATRIX_NAME),
    )
