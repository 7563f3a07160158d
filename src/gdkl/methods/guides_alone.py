"""Guides with equal weights: what is left of the stack where there are too few rows to hold any out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from gdkl.guide import GuideKernel, RelevanceFit, fit_relevance_folds
from gdkl.methods.guide_stack import ITERATIONS, guide_kernels
from gdkl.training import FittedModel, Stack, TrainingData, relevance_model

#: Fewer rows are not enough for two folds of two. Six draws of three problems: the log-likelihood of the stack is above
#: that of the guides alone with 4 rows (by 0.1 to 2.9) and with 8 to 12 (by 0.1 in the mean), the same with 5 and 6.
FEWEST_ROWS = 4


def fit_guides_alone(
    data: TrainingData,
    kernel: GuideKernel,
    *,
    smooth: bool,
    groups: Tensor | None,
    noise_floor: float,
    little_noise: bool = False,
) -> Stack:
    """Fit each guide to all rows, with equal weights: where there are too few to hold any out.

    The arguments are those of `fit_guides`.
    """
    known, models, fits = data.double().arguments(0), dict[str, FittedModel](), list[RelevanceFit]()
    options: dict[str, Any] = {"groups": groups, "noise_floor": noise_floor, "little_noise": little_noise}
    for name, own, deviation in guide_kernels(kernel, smooth=smooth):
        starts = fits if fits and fits[0].kernel is own else None
        fits = fit_relevance_folds(own, [known], starts, deviation=deviation, iterations=ITERATIONS, **options)
        history = {"step": 1.0, "objective": -fits[0].log_evidence, "noise": fits[0].noise, "scale": fits[0].scale}
        models[name] = replace(relevance_model(data, fits[0]), history=[history])
    return Stack(models, data.targets.new_full((len(models), data.outputs), 1 / len(models)))
