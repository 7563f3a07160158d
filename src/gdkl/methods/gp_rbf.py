"""A plain Gaussian process on the scaled columns: kernel + marginal likelihood, maximised to convergence."""

from __future__ import annotations

from collections.abc import Sequence

from gpytorch.kernels import Kernel
from torch import nn

from gdkl.gp import ExactPosterior, GPyTorchKernel, rbf_kernel, squared_distances
from gdkl.numerics import NumericsError, require_memory, tensor_bytes
from gdkl.training import FittedModel, KernelAndNoise, TrainingData, batch_kernel, check_kernel, maximise_evidence

_MATRIX_NAME = "the kernel matrix"

#: Matrices of n rows squared that one evaluation of the evidence and its gradient holds.
_MATRICES = 8


def fit_gp(data: TrainingData, *, ard: bool = False, base_kernel: Kernel | None = None) -> FittedModel:
    """Fit kernel parameters and noise by L-BFGS on the evidence, from several starts; the best is kept.

    Args:
        data: Scaled training data of one member.
        ard: Whether the RBF has one lengthscale per column.
        base_kernel: Another kernel; then its own values are the only start.
    """
    require_memory(
        _MATRICES * data.members * data.outputs * tensor_bytes(data.n, data.n, dtype=data.targets.dtype),
        what=f"exact training on {data.n} rows",
        remedy="Train on fewer rows.",
        device=data.rows.device,
    )
    best: tuple[float, KernelAndNoise, list[dict[str, float]]] | None = None
    for model in _starts(data, ard, base_kernel):
        try:
            value, history = maximise_evidence(model.to(data.rows), data, name=_MATRIX_NAME)
        except NumericsError:
            if best is None and base_kernel is not None:
                raise
            continue
        if best is None or value < best[0]:
            best = (value, model, history)
    if best is None:
        raise NumericsError("the evidence was not finite from any start: check the scale of X.")
    _, model, history = best
    model.requires_grad_(False)
    posterior = ExactPosterior.condition(model.kernel, data.rows, data.targets, model.noise(), name=_MATRIX_NAME)
    return FittedModel(nn.Identity(), posterior, history)


def _starts(data: TrainingData, ard: bool, base_kernel: Kernel | None) -> Sequence[KernelAndNoise]:
    """Where the search begins: GPyTorch's own values, and the typical distance with little or much noise."""
    shape = (data.members, data.outputs)
    if base_kernel is not None:
        kernel = batch_kernel(base_kernel, shape)
        check_kernel(GPyTorchKernel(kernel).to(data.rows), data.rows[:, :2])
        return [KernelAndNoise(kernel, shape, start=0.1)]
    typical = float(squared_distances(data.rows).mean().sqrt())
    starts: list[KernelAndNoise] = []
    for lengthscale, noise in ((0.7, 0.02), (0.5 * typical, 0.02), (typical, 0.3)):
        kernel = rbf_kernel(shape, ard_num_dims=data.rows.shape[-1] if ard else None)
        kernel.base_kernel.initialize(lengthscale=lengthscale)
        kernel.initialize(outputscale=1.0)
        starts.append(KernelAndNoise(kernel, shape, start=noise))
    return starts
