"""Means and covariances between rows of a mixture of joint Gaussians, as it is or seen through a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import hermite_e
from numpy.typing import NDArray

from gdkl.predictive.mixture import FloatArray

if TYPE_CHECKING:
    from gdkl.inputs import Warp

#: Quadrature nodes, and terms of the expansion of a warp's inverse.
_NODES, _TERMS = 64, 24


def joint_moments(
    means: FloatArray, covariances: FloatArray, weights: FloatArray, warp: Warp | None
) -> tuple[FloatArray, FloatArray]:
    """Mean ``(m,)`` and covariance ``(m, m)`` of components ``(K, m)`` and ``(K, m, m)`` with weights ``(K,)``.

    With g_i(z) = Σ_k c_ik h_k(z) in normalised Hermite polynomials, standard normal z, z' of correlation ρ have
    cov(g_i(z), g_j(z')) = Σ_{k ≥ 1} c_ik c_jk ρᵏ (Mehler's formula). Variances are by quadrature alone.
    """
    if warp is not None:
        means, covariances = _unwarped(means, covariances, warp)
    mean = weights @ means
    centred = means - mean
    return mean, np.einsum("k,kij->ij", weights, covariances) + np.einsum("k,ki,kj->ij", weights, centred, centred)


def _unwarped(means: FloatArray, covariances: FloatArray, warp: Warp) -> tuple[FloatArray, FloatArray]:
    deviation = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    z, w = hermite_e.hermegauss(_NODES)
    w = w / w.sum()
    g = warp.inverse(means[..., None] + deviation[..., None] * z)
    c = g @ (w[:, None] * _polynomials(z))
    correlation = covariances / (deviation[:, :, None] * deviation[:, None, :])
    total, power = np.zeros_like(covariances), np.ones_like(covariances)
    for k in range(1, _TERMS):
        power = power * correlation
        total += c[:, :, None, k] * c[:, None, :, k] * power
    index = np.arange(means.shape[1])
    total[:, index, index] = (g - c[..., :1]) ** 2 @ w
    return c[..., 0], total


def _polynomials(z: NDArray[np.float64]) -> FloatArray:
    """Normalised Hermite polynomials, ``(nodes, terms)``."""
    columns = [np.ones_like(z), z]
    for k in range(2, _TERMS):
        columns.append((z * columns[-1] - np.sqrt(k - 1) * columns[-2]) / np.sqrt(k))
    return np.stack(columns, axis=-1)
