"""Several guides of classes, with priors on relevance of different width, and how each predicts held-out folds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gdkl.calibration import Folds
from gdkl.gp import ClassLikelihood, class_log_probs
from gdkl.guide import (
    GuideKernel,
    RelevanceFit,
    as_kernel_function,
    class_sites,
    fit_class_relevance,
    fit_relevance_folds,
)
from gdkl.methods.guide_stack import guide_kernels
from gdkl.training import ClassData, FittedModel, TrainingData, relevance_model

#: Steps of L-BFGS at most, for all rows and for a fold; both begin at their own fit with the narrower prior.
_ITERATIONS = 60


class ClassGuides(NamedTuple):
    """Guides by name, and what they tell of the folds.

    Attributes:
        models: Conditioned on all rows.
        log_probs: Of the classes at held-out rows, fold by fold, ``(models, classes, rows)``.
        whole: Mean hyperparameters of the guides that know all rows.
        parts: The same without each fold.
    """

    models: dict[str, FittedModel]
    log_probs: Tensor
    whole: RelevanceFit
    parts: list[RelevanceFit]


def fit_class_guides(
    data: ClassData, kernel: GuideKernel, folds: Folds, samples: Tensor, groups: Tensor | None = None
) -> ClassGuides:
    """Fit each guide to all rows, and to the rows outside each fold.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides. Relevances are those of an infinite network; another kernel is taken as it is.
        folds: Held-out rows.
        samples: Base samples of predictions, ``(samples, classes)``.
        groups: For each column the number of its group; a group shares a relevance.
    """
    rows, labels = data.rows[0].double(), data.labels[0]
    # All rows are a part like those outside a fold, so that threads share all fits of a guide.
    known = [{"rows": rows[part], "labels": labels[part]} for part in (torch.arange(data.n), *folds.used)]
    models, fits, log_probs = dict[str, FittedModel](), list[list[RelevanceFit]](), list[Tensor]()
    for name, _, deviation in guide_kernels(kernel, smooth=False):
        own: dict[str, Any] = {"n_classes": data.outputs, "deviation": deviation, "groups": groups}
        own |= {"fit": fit_class_relevance, "iterations": _ITERATIONS}
        fits.append(fit_relevance_folds(kernel, known, fits[-1] if fits else None, **own))
        models[name] = _model(data, fits[-1][0])
        predicted = [
            latent_log_probs(_model(data.take(used), one), data.rows[:, out], samples)[0]
            for one, out, used in zip(fits[-1][1:], *folds, strict=True)
        ]
        log_probs.append(torch.cat(predicted, dim=-1))
    whole, *parts = (_mean(each, rows) for each in zip(*fits, strict=True))
    return ClassGuides(models, torch.stack(log_probs), whole, parts)


def latent_log_probs(model: FittedModel, rows: Tensor, samples: Tensor) -> Tensor:
    """Log probabilities ``(members, classes, m)`` of a softmax of the latent functions at rows ``(members, m, d)``."""
    return class_log_probs(model.marginals(rows), ClassLikelihood.DIRICHLET, model.noise, samples)


def label_sites(data: ClassData, fit: RelevanceFit) -> ClassData:
    """The same data with the sites of Laplace's approximation as targets."""
    rows = data.rows[0].double() * fit.multipliers
    K = as_kernel_function(fit.kernel).gram(rows) * (fit.scale / fit.normaliser)
    values, noise = (value[None].to(data.targets) for value in class_sites(K, data.labels[0], data.outputs))
    return replace(data, targets=values, label_noise=noise)


def _model(data: ClassData, fit: RelevanceFit) -> FittedModel:
    sites = label_sites(data, fit)
    return relevance_model(TrainingData(data.rows, sites.targets, noise_added=sites.label_noise), fit)


def _mean(fits: Sequence[RelevanceFit], rows: Tensor) -> RelevanceFit:
    """Geometric means of multipliers and scales."""
    multipliers = torch.stack([fit.multipliers.log() for fit in fits]).mean(dim=0).exp()
    scale = math.exp(sum(math.log(fit.scale) for fit in fits) / len(fits))
    normaliser = float(as_kernel_function(fits[0].kernel).diagonal(rows * multipliers).mean())
    return replace(fits[0], multipliers=multipliers, scale=scale, normaliser=normaliser)
