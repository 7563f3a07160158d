"""Several guides of one kernel, with priors on relevance of different width, and how each predicts held-out folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gdkl import infinite
from gdkl.calibration import Folds, HeldOutMixture, NoiseFactor, fold_by_fold, stack_weights
from gdkl.gp import per_row
from gdkl.guide import GuideKernel, RelevanceFit, fit_relevance_folds
from gdkl.training import FittedModel, TrainingData, relevance_model

#: Prior deviations of the log relevances: none, and two widths. No single one serves all tables and sizes, and a
#: mixture is better than the best of them.
DEVIATIONS = (0.0, 0.6, 1.5)

#: A smoother kernel beside the guide's, of which functions are differentiable: kin8nm and concrete gain by it.
SMOOTH, SMOOTH_DEVIATION = infinite.Sequential(infinite.Linear(weight_var=1.0), infinite.RBF(gamma=0.5)), 1.0

#: Most steps of L-BFGS; a fit begins where that to the same rows with the narrower prior ended.
ITERATIONS = 40


class GuideStack(NamedTuple):
    """Guides by name, and what they say of the folds.

    Attributes:
        models: Conditioned on all rows.
        held_out: What those without each fold say of its rows.
        multipliers: Relevances of the columns without each fold, ``(folds, d)``: weighted means over the guides with
            the given kernel.
    """

    models: dict[str, FittedModel]
    held_out: HeldOutMixture
    multipliers: Tensor

    def with_factor(self, factor: NoiseFactor) -> GuideStack:
        """The same with another noise: the held-out rows' by row, and its level in predictions."""
        models = {
            name: replace(model, predictive_noise=factor.level * model.noise) for name, model in self.models.items()
        }
        held_out = self.held_out.scaled(factor.level * fold_by_fold(factor.held_out))
        return self._replace(models=models, held_out=held_out)


def fit_guides(
    data: TrainingData,
    kernel: GuideKernel,
    folds: Folds,
    *,
    smooth: bool,
    groups: Tensor | None,
    noise_floor: float,
    little_noise: bool = False,
) -> GuideStack:
    """Fit each guide to all rows, and to the rows outside each fold.

    Args:
        data: Scaled training data of one fit.
        kernel: Of the guides. Relevances are those of an infinite network; another kernel is taken as it is.
        folds: Held-out rows.
        smooth: Whether a guide with the smooth kernel stands beside them.
        groups: For each column the number of its group; a group shares a relevance.
        noise_floor: Smallest noise variance.
        little_noise: Whether a prior says that targets are nearly exact.
    """
    known = data.double()
    used, out = (known.repeat(len(index)).take_each(index) for index in (folds.used, folds.held_out))
    # All rows are a part like those outside a fold, so that threads share all fits of a guide.
    parts = [known.arguments(0), *(used.arguments(k) for k in range(used.members))]
    options: dict[str, Any] = {"groups": groups, "noise_floor": noise_floor, "little_noise": little_noise}
    models, predicted, logs = dict[str, FittedModel](), list[HeldOutMixture](), list[Tensor]()
    fits = list[RelevanceFit]()
    for name, own, deviation in guide_kernels(kernel, smooth=smooth):
        starts = fits if fits and fits[0].kernel is own else None
        fits = fit_relevance_folds(own, parts, starts, deviation=deviation, iterations=ITERATIONS, **options)
        models[name] = relevance_model(data, fits[0])
        predicted.append(_held_out(used, out, fits[1:]))
        if own is kernel:
            logs.append(torch.stack([one.multipliers.log() for one in fits[1:]]))
    held_out = HeldOutMixture(*(torch.stack(values) for values in zip(*predicted, strict=True)))
    weights = stack_weights(held_out.log_densities(fold_by_fold(out.targets))[: len(logs)]).mean(dim=-1)
    multipliers = torch.tensordot(weights, torch.stack(logs).to(weights), dims=1).exp()
    return GuideStack(models, held_out, multipliers.to(data.rows))


def _held_out(used: TrainingData, out: TrainingData, refits: Sequence[RelevanceFit]) -> HeldOutMixture:
    """What one guide without each fold says of its rows, ``(outputs, folds · rows)``."""
    noise = used.targets.new_tensor([[fit.noise] for fit in refits])
    by_row = per_row(used.row_noise(noise), used.targets)[:, 0]
    found = [fit.predict(used.rows[k], used.targets[k], out.rows[k], by_row[k]) for k, fit in enumerate(refits)]
    mean, variance = (torch.stack(values) for values in zip(*found, strict=True))
    own, added = out.noise_parts(noise)
    return HeldOutMixture(*(fold_by_fold(value) for value in (mean, variance + added, own)))


def guide_kernels(kernel: GuideKernel, *, smooth: bool) -> Iterator[tuple[str, GuideKernel, float | None]]:
    """Name, kernel and prior deviation of each guide; those of the given kernel first, from narrow to wide."""
    if isinstance(kernel, infinite.InfiniteNetwork):
        yield from (
            (f"guide {deviation:g}" if deviation else "isotropic guide", kernel, deviation) for deviation in DEVIATIONS
        )
    else:
        yield "guide", kernel, None
    if smooth:
        yield "smooth guide", SMOOTH, SMOOTH_DEVIATION
