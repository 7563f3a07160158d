"""Covariances of new rows with training rows, as a graph: RBF kernels and dense infinite networks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gdkl.export.graph import Operand, Value
from gdkl.gp import GPyTorchKernel, KernelFunction, ScaledKernel
from gdkl.gp.rbf import LOWEST_EXPONENT
from gdkl.guide import InfiniteKernelFunction
from gdkl.infinite import DenseChain, RBFLayer
from gdkl.inputs import FloatArray
from gdkl.numerics import ModelFileError


class Covariances(NamedTuple):
    """Of m new rows with n training rows ``(members, outputs or 1, m, n)``, and the new rows' variances ``(..., m)``.

    Variances that are the same for all rows have an m of 1.
    """

    cross: Value
    prior: Operand


def covariances(kernel: KernelFunction, rows: Value, known: Tensor) -> Covariances:
    """Of new rows ``(members or 1, 1, m, p)`` with training rows ``(members, 1, n, p)``."""
    if isinstance(kernel, ScaledKernel):
        cross, prior = covariances(kernel.kernel, rows, known)
        scale = numbers(kernel.scale)[..., None]
        return Covariances(scale[..., None] * cross, scale * prior)
    if isinstance(kernel, GPyTorchKernel) and (parts := kernel.scaled_rbf()) is not None:
        scale, lengthscale = (numbers(part) for part in parts)
        return Covariances(scale[..., None, None] * _rbf(rows, numbers(known), lengthscale), scale[..., None])
    network = kernel.network if isinstance(kernel, InfiniteKernelFunction) and kernel.image_shape is None else None
    if network is not None and (layer := RBFLayer.of(network)) is not None:
        lengthscale = np.full((1, 1, 1, 1), math.sqrt(known.shape[-1] / (2 * layer.rate)))
        return Covariances(_rbf(rows, numbers(known), lengthscale), np.ones((1, 1, 1)))
    if network is not None and (chain := DenseChain.of(network)) is not None:
        return _dense(chain, rows, numbers(known))
    own = network or (kernel.kernel if isinstance(kernel, GPyTorchKernel) else kernel)
    raise ModelFileError(
        f"ONNX files are of RBF kernels and dense infinite networks of ReLU layers, not of {type(own).__name__}: fit "
        "with one of these."
    )


def numbers(tensor: Tensor) -> FloatArray:
    """A tensor as an array in double precision."""
    return tensor.detach().to("cpu", torch.float64).numpy()


def _rbf(rows: Value, known: FloatArray, lengthscale: FloatArray) -> Value:
    """exp(−|a − b|² / 2ℓ²), centred at the training rows as in training."""
    centre = known.mean(axis=-2, keepdims=True)
    a, b = (rows - centre) / lengthscale, (known - centre) / lengthscale
    product = a @ np.swapaxes(b, -1, -2)
    similar = product - 0.5 * a.square.sum(-1, keep=True) - 0.5 * (b**2).sum(axis=-1)[..., None, :]
    return similar.between(LOWEST_EXPONENT * math.log(2), 0.0).map("Exp")


def _dense(chain: DenseChain, rows: Value, known: FloatArray) -> Covariances:
    """The formulas of `gdkl.infinite.DenseChain`."""
    graph, (w, _, b) = rows.graph, chain.stages[0]
    w /= known.shape[-1]
    k = rows @ np.swapaxes(w * known, -1, -2) + b
    q, q_known = w * rows.square.sum(-1, keep=True) + b, (w * (known**2).sum(axis=-1) + b)[..., None, :]
    for odd, even, bias in chain.stages[1:]:
        root, root_known = q.map("Sqrt"), np.sqrt(q_known)
        # A row of variance zero has no direction: covariances there count as zero.
        positive = graph.op("Greater", q, 0.0)
        inverse = graph.op("Where", positive, graph.op("Div", 1.0, root), 0.0)
        inverse_known = np.divide(1.0, root_known, out=np.zeros_like(root_known), where=q_known > 0)
        c = (k * inverse * inverse_known).between(-1.0, 1.0)
        sine = ((1.0 - c) * (1.0 + c)).map("Sqrt")
        D = (odd + even) - (2 * even / math.pi) * _angle(c, sine)
        k = k * D + sine * root * ((2 * even / math.pi) * root_known) + bias
        q, q_known = (odd + even) * q + bias, (odd + even) * q_known + bias
    return Covariances(k, graph.op("Squeeze", q, np.array([-1])))


def _angle(cosine: Value, sine: Value) -> Value:
    """θ from cos θ and sin θ: runtimes have the arc cosine in single precision alone.

    From that start θ₀ the rest is δ = arcsin(sin θ cos θ₀ − cos θ sin θ₀), at most 4e-4: two terms have all digits.
    """
    graph = cosine.graph
    single = graph.op("Cast", cosine, to=1).map("Acos")
    start = graph.op("Cast", single, to=11)
    delta = sine * start.map("Cos") - cosine * start.map("Sin")
    return start + delta * (1.0 + delta.square * (1 / 6))
