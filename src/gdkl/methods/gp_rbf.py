"""A plain Gaussian process on the scaled columns: kernel + marginal likelihood, maximised to convergence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.distributions import LogNormal

from gdkl.gp import NOISE_START, ExactPosterior, GPyTorchKernel, rbf_kernel, squared_distances
from gdkl.guide import informative
from gdkl.numerics import NumericsWarning, limit_threads, require_memory, tensor_bytes
from gdkl.training import (
    REFUSED,
    FittedModel,
    KernelAndNoise,
    TrainingData,
    batch_kernel,
    check_kernel,
    maximise_evidence,
)

_MATRIX_NAME = "the kernel matrix"

#: Matrices of n rows squared that one evaluation of the evidence and its gradient holds.
_MATRICES = 8


def fit_gp(data: TrainingData, *, ard: bool = False, base_kernel: Kernel | None = None) -> FittedModel:
    """Fit kernel parameters and noise by L-BFGS on the evidence, from several starts; the best is kept.

    Args:
        data: Scaled training data of one member.
        ard: Whether the RBF has one lengthscale per column, and lengthscales and noise the priors of BoTorch.
        base_kernel: Another kernel; then its own values are the only start.
    """
    require_memory(
        _MATRICES * data.members * data.outputs * tensor_bytes(data.n, data.n, dtype=data.targets.dtype),
        what=f"exact training on {data.n} rows",
        remedy="Train on fewer rows.",
        device=data.rows.device,
    )
    starts = [model.to(data.rows) for model in _starts(data, ard, base_kernel)]
    first, log_prior = deepcopy(starts[0]), _log_prior if ard else None
    with limit_threads(data.n):
        fits = [(*maximise_evidence(model, data, name=_MATRIX_NAME, log_prior=log_prior), model) for model in starts]
    # Where no evidence is finite, the first start, which has most noise, counts as it is.
    value, history, model = min(fits, key=lambda fit: fit[0])
    if value >= REFUSED:
        warnings.warn(
            "The evidence of the Gaussian process was not finite from any start: its hyperparameters stay as they "
            "began. Check the kernel and its gradient at equal rows.",
            NumericsWarning,
            stacklevel=2,
        )
    model.requires_grad_(False)
    _reset_untold(model, first, ~informative(data.targets))
    noise = model.noise()
    posterior = ExactPosterior.condition(
        model.kernel, data.rows, data.targets, noise, row_noise=data.further_noise(noise), name=_MATRIX_NAME
    )
    return FittedModel(nn.Identity(), posterior, history)


def _reset_untold(model: KernelAndNoise, first: KernelAndNoise, untold: Tensor) -> None:
    """Give outputs whose targets tell nothing, ``(members, outputs)``, the hyperparameters of the first start."""
    first.noise.assign(torch.full_like(first.noise(), NOISE_START))
    for value, start in zip(model.parameters(), first.parameters(), strict=True):
        # What a user's kernel has beside its own parameters serves all outputs.
        if value.shape[:2] == untold.shape:
            value[untold] = start.detach()[untold]


def _log_prior(model: KernelAndNoise) -> Tensor:
    """Log-normal lengthscales that grow with the root of the columns, as distances do, and little noise."""
    lengthscale = cast(Tensor, cast(Any, model.kernel.kernel).base_kernel.lengthscale)
    location = math.sqrt(2) + 0.5 * math.log(lengthscale.shape[-1])
    priors = LogNormal(location, math.sqrt(3), validate_args=False), LogNormal(-4.0, 1.0, validate_args=False)
    return priors[0].log_prob(lengthscale).sum() + priors[1].log_prob(model.noise()).sum()


def _starts(data: TrainingData, ard: bool, base_kernel: Kernel | None) -> Sequence[KernelAndNoise]:
    """Where the search begins: the typical distance with much or little noise, and GPyTorch's own values."""
    shape = (data.members, data.outputs)
    if base_kernel is not None:
        kernel = batch_kernel(base_kernel, shape)
        check_kernel(GPyTorchKernel(kernel).to(data.rows), data.rows[:, :2])
        return [KernelAndNoise(kernel, shape, start=0.1)]
    # Of standardised rows; those of equal ones are not.
    expected = math.sqrt(2 * data.rows.shape[-1])
    typical = float(squared_distances(data.rows).mean().sqrt()) or expected
    starts: list[KernelAndNoise] = []
    for lengthscale, noise in ((typical, 0.3), (0.5 * typical, 0.02), (0.7, 0.02)):
        kernel = rbf_kernel(shape, ard_num_dims=data.rows.shape[-1] if ard else None)
        kernel.base_kernel.initialize(lengthscale=lengthscale)
        kernel.initialize(outputscale=1.0)
        starts.append(KernelAndNoise(kernel, shape, start=noise))
    return starts
