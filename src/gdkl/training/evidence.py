"""A plain Gaussian process's few parameters by evidence, to convergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from gdkl.gp import GPyTorchKernel, Noise
from gdkl.numerics import NumericsError, Vector, minimise, unreported_jitters
from gdkl.objectives import marginal_likelihood
from gdkl.training.data import TrainingData

_MAX_ITERATIONS = 500

#: The objective where the evidence is not finite: the line search steps back.
REFUSED = 1e10


class KernelAndNoise(nn.Module):
    """A kernel over rows and a noise: all that a plain Gaussian process has."""

    def __init__(self, kernel: Kernel, shape: tuple[int, ...], start: float):
        super().__init__()
        self.kernel = GPyTorchKernel(kernel)
        self.noise = Noise(shape, start=start)


def maximise_evidence(
    model: KernelAndNoise,
    data: TrainingData,
    *,
    name: str,
    log_prior: Callable[[KernelAndNoise], Tensor] | None = None,
) -> tuple[float, list[dict[str, float]]]:
    """Minimise the negative log evidence over the unconstrained parameters by L-BFGS.

    Args:
        model: What is fitted, in place; it stays as it is where its evidence is not finite.
        data: Training rows and targets.
        name: What the kernel matrix is, for numerical errors.
        log_prior: Logarithm of the prior density of the parameters, summed over all; None for none.

    Returns:
        The smallest value, and one row of history per iteration.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    history: list[dict[str, float]] = []
    last = float("nan")

    def load(vector: Vector) -> None:
        vector_to_parameters(torch.as_tensor(vector).to(parameters[0]), parameters)

    def evaluate(vector: Vector) -> tuple[float, Vector]:
        nonlocal last
        load(vector)
        model.zero_grad(set_to_none=False)
        # A line search may step where the matrix needs a jitter, or has no factor; only the result's matters.
        with unreported_jitters(), suppress(NumericsError):
            K = model.kernel.gram(data.rows.unsqueeze(-3))
            value = marginal_likelihood(K, data.targets, data.row_noise(model.noise()), name=name).value.sum()
            if log_prior is not None:
                value = value - log_prior(model) / data.targets[0].numel()
            value.backward()
            gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in parameters]
            gradient = parameters_to_vector(gradients).cpu().double().numpy()
            if math.isfinite(float(value.detach())) and np.isfinite(gradient).all():
                last = float(value.detach())
                return last, gradient
        return REFUSED, np.zeros_like(vector)

    def record(_: Vector) -> None:
        noise = float(model.noise().detach().mean())
        history.append({"step": len(history) + 1.0, "objective": last, "noise": noise})

    start = parameters_to_vector(parameters).detach().cpu().double().numpy()
    found = minimise(
        evaluate,
        start,
        iterations=_MAX_ITERATIONS,
        value_tolerance=1e-9,
        gradient_tolerance=1e-7,
        callback=record,
    )
    load(found.x)
    return found.value, history
