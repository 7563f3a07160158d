"""Mixtures of Gaussians, one per target: densities, quantiles, scores and moments in the units they are Gaussian in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[FloatArray], FloatArray]

#: Nodes of Gauss-Hermite quadrature: exact to rounding for exp(z) of deviation 1.5 and its square; a Yeo-Johnson
#: inverse, whose second derivative jumps at 0, is left with an error of 5e-5 standard deviations.
HERMITE_NODES = 32

#: Edges of the cells of numerical integration, in standard deviations of each component: with four nodes per cell a
#: CRPS has six digits, or five where a Yeo-Johnson inverse has its jump.
_EDGES = np.arange(-8.0, 9.0)


@dataclass(frozen=True)
class GaussianMixture:
    """``K`` Gaussians for each of the targets.

    Attributes:
        means: Of the components, ``(K, *shape)``.
        variances: Of the components, same shape.
        weights: Of the components, adding up to 1; broadcast against the means.
    """

    means: FloatArray
    variances: FloatArray
    weights: FloatArray

    def log_prob(self, z: FloatArray) -> FloatArray:
        """Log density at ``z``, of the targets' shape."""
        from scipy.special import logsumexp  # noqa: PLC0415  (slow to import)

        squared = (z - self.means) ** 2 / self.variances
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        terms = log_weights - 0.5 * (squared + np.log(2 * np.pi * self.variances))
        return np.asarray(logsumexp(terms, axis=0))

    def cdf(self, z: FloatArray) -> FloatArray:
        """Probability of a value up to ``z``."""
        from scipy.special import ndtr  # noqa: PLC0415

        return (self.weights * ndtr((z - self.means) / np.sqrt(self.variances))).sum(axis=0)

    def quantile(self, level: float) -> FloatArray:
        """Value whose cdf is ``level``."""
        from scipy.special import ndtri  # noqa: PLC0415

        candidates = self.means + ndtri(level) * np.sqrt(self.variances)
        # The mixture's quantile lies between the smallest and largest of its components' quantiles.
        low, high = candidates.min(axis=0), candidates.max(axis=0)
        if len(candidates) == 1:
            return low
        for _ in range(100):
            middle = 0.5 * (low + high)
            if bool(((middle == low) | (middle == high)).all()):
                break
            below = self.cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def moments(self, change: Function | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of ``change`` of a value, by Gauss-Hermite quadrature; of the value itself without one."""
        means, variances = self.means, self.variances
        if change is not None:
            nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE_NODES)
            std, medians = np.sqrt(variances), change(means)
            # Distances to the median, so that a small variance does not cancel.
            first, second = np.zeros_like(means), np.zeros_like(means)
            for node, weight in zip(nodes, weights / weights.sum(), strict=True):
                distance = change(means + node * std) - medians
                first, second = first + weight * distance, second + weight * distance**2
            means, variances = medians + first, np.maximum(second - first**2, 0.0)
        # Law of total variance: the spread inside the components plus the spread of their means.
        mean = (self.weights * means).sum(axis=0)
        return mean, (self.weights * (variances + (means - mean) ** 2)).sum(axis=0)

    def crps(self, z: FloatArray) -> FloatArray:
        """Continuous ranked probability score, E|Z − z| − ½·E|Z − Z'|."""
        to_target = (self.weights * _expected_absolute(self.means - z, self.variances)).sum(axis=0)
        between = np.zeros_like(to_target)
        for weight, mean, variance in zip(self.weights, self.means, self.variances, strict=True):
            between += weight * (self.weights * _expected_absolute(mean - self.means, variance + self.variances)).sum(0)
        return to_target - 0.5 * between

    def warped_crps(self, y: FloatArray, forward: Function, inverse: Function) -> FloatArray:
        """CRPS of ``inverse`` of a value Z: 2·∫ |inverse(z) − y|·(F(z) below y, 1 − F(z) above it) dF(z).

        The cells of Gauss-Legendre quadrature end at ``y`` and at multiples of the components' standard deviations, so
        that each component is resolved however different their widths are.
        """
        from scipy.special import ndtr  # noqa: PLC0415

        std = np.sqrt(self.variances)
        edges = (self.means + _EDGES.reshape(-1, *(1,) * std.ndim) * std).reshape(-1, *y.shape)
        target = np.clip(forward(y), edges.min(axis=0), edges.max(axis=0))
        nodes, weights = np.polynomial.legendre.leggauss(4)
        result = np.zeros_like(y)
        for low, high in pairwise(np.sort(np.concatenate([edges, target[None]]), axis=0)):
            for node, weight in zip(nodes, weights, strict=True):
                z = 0.5 * (low + high) + 0.5 * node * (high - low)
                ratio = (z - self.means) / std
                F = (self.weights * ndtr(ratio)).sum(axis=0)
                density = (self.weights / std * np.exp(-0.5 * ratio**2)).sum(axis=0) / np.sqrt(2 * np.pi)
                tail = np.where(z < target, F, 1 - F)
                result += weight * (high - low) * density * tail * np.abs(inverse(z) - y)
        return result

    def sample(self, n: int, generator: np.random.Generator | np.random.RandomState) -> FloatArray:
        """``n`` draws, ``(n, *shape)``. One component is drawn for all targets of a draw, as one function would be."""
        level = generator.uniform(size=n).reshape(n, *(1,) * self.means.ndim)
        component = (level >= np.cumsum(self.weights, axis=0)[:-1]).sum(axis=1)
        noise = generator.standard_normal(size=(n, *self.means.shape[1:]))
        mean, variance = (np.take_along_axis(part, component, axis=0) for part in (self.means, self.variances))
        return mean + noise * np.sqrt(variance)


def _expected_absolute(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E|Z| for Z ~ N(mean, variance)."""
    from scipy.special import ndtr  # noqa: PLC0415

    std = np.sqrt(variance)
    ratio = mean / std
    return 2 * std * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi) + mean * (2 * ndtr(ratio) - 1)
