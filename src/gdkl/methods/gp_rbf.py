"""A plain Gaussian process on the scaled columns, its few parameters by evidence to convergence."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import nn

from gdkl.gp import ExactPosterior, GPyTorchKernel, Noise, rbf_kernel, squared_distances
from gdkl.methods.cost import matrix_bytes
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import batch_kernel, check_kernel
from gdkl.methods.fitted import FittedModel
from gdkl.numerics import NumericsError, NumericsWarning, require_memory
from gdkl.objectives import marginal_likelihood

_MATRIX_NAME = "the kernel matrix"
_MAX_ITERATIONS = 500


class KernelAndNoise(nn.Module):
    """A kernel over rows and a noise: all that a plain Gaussian process has."""

    def __init__(self, kernel: Kernel, shape: tuple[int, ...], start: float):
        super().__init__()
        self.kernel = GPyTorchKernel(kernel)
        self.noise = Noise(shape, start=start)


def fit_gp(data: TrainingData, *, ard: bool = False, base_kernel: Kernel | None = None) -> FittedModel:
    """Fit kernel parameters and noise by L-BFGS on the evidence, from several starts; the best is kept.

    Args:
        data: Scaled training data of one member.
        ard: Whether the RBF has a lengthscale a column.
        base_kernel: Another kernel; then its own values are the only start.
    """
    require_memory(
        matrix_bytes(data, data.n, count=8),
        what=f"exact training on {data.n} rows",
        remedy="Train on fewer rows.",
        device=data.rows.device,
    )
    if base_kernel is not None:
        shape = (data.members, data.outputs)
        check_kernel(GPyTorchKernel(batch_kernel(base_kernel, shape)).to(data.rows), data.rows[:, :2])
    best: tuple[float, KernelAndNoise, list[dict[str, float]]] | None = None
    for model in _starts(data, ard, base_kernel):
        try:
            value, history = _maximise_evidence(model.to(data.rows), data)
        except NumericsError:
            if best is None and base_kernel is not None:
                raise
            continue
        if best is None or value < best[0]:
            best = (value, model, history)
    if best is None:
        raise NumericsError("the evidence was not finite from any start: check the scale of X.")
    _, model, history = best
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    posterior = ExactPosterior.condition(model.kernel, data.rows, data.targets, model.noise(), name=_MATRIX_NAME)
    return FittedModel(nn.Identity(), posterior, history)


def _starts(data: TrainingData, ard: bool, base_kernel: Kernel | None) -> Sequence[KernelAndNoise]:
    """Where the search begins: GPyTorch's own values, and the typical distance with little or much noise."""
    shape = (data.members, data.outputs)
    if base_kernel is not None:
        return [KernelAndNoise(batch_kernel(base_kernel, shape), shape, start=0.1)]
    typical = float(squared_distances(data.rows).mean().sqrt())
    starts: list[KernelAndNoise] = []
    for lengthscale, noise in ((0.7, 0.02), (0.5 * typical, 0.02), (typical, 0.3)):
        kernel = rbf_kernel(shape, ard_num_dims=data.rows.shape[-1] if ard else None)
        _set_lengthscale(kernel, lengthscale)
        starts.append(KernelAndNoise(kernel, shape, start=noise))
    return starts


def _set_lengthscale(kernel: ScaleKernel, value: float) -> None:
    rbf = cast(RBFKernel, kernel.base_kernel)
    rbf.initialize(lengthscale=value)
    kernel.initialize(outputscale=1.0)


def _maximise_evidence(model: KernelAndNoise, data: TrainingData) -> tuple[float, list[dict[str, float]]]:
    """Minimise the negative log evidence over the unconstrained parameters; one history row an iteration."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    history: list[dict[str, float]] = []
    last = float("nan")

    def load(vector: NDArray[np.float64]) -> None:
        offset = 0
        for parameter in parameters:
            size = parameter.numel()
            chunk = torch.as_tensor(vector[offset : offset + size]).reshape(parameter.shape)
            parameter.data.copy_(chunk)
            offset += size

    def evaluate(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal last
        load(vector)
        model.zero_grad(set_to_none=True)
        K = model.kernel.gram(data.rows.unsqueeze(-3))
        with warnings.catch_warnings():
            # A line search may step where the matrix needs a jitter; only the result's matters.
            warnings.simplefilter("ignore", NumericsWarning)
            value = marginal_likelihood(K, data.targets, model.noise(), name=_MATRIX_NAME).value.sum()
        value.backward()
        last = float(value.detach())
        gradient = [
            np.zeros(p.numel()) if p.grad is None else p.grad.detach().cpu().double().numpy().ravel()
            for p in parameters
        ]
        return last, np.concatenate(gradient)

    def record(_: NDArray[np.float64]) -> None:
        noise = float(model.noise().detach().mean())
        history.append({"step": len(history) + 1.0, "objective": last, "noise": noise})

    start = np.concatenate([p.detach().cpu().double().numpy().ravel() for p in parameters])
    result = minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=record,
        options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-12, "gtol": 1e-7},
    )
    load(result.x)
    return float(result.fun), history
