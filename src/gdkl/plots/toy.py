"""The paper's illustrative example in numbers: what a guide wants a student to believe about held-out points.

A Gaussian process fitted on D1 believes p(f | x, D1) at a point of D2. Conditioning that marginal on the point's own
noisy label gives p(f | x, y, D1), the Gaussian that guides the student: near the truth and tight where D1 says
enough, near the label and as wide as the noise where D1 says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.datasets import toy, toy_function
from gdkl.estimators import GPRegressor
from gdkl.numerics import DataError, OptionError
from gdkl.predictive import FloatArray, Predictive

#: Where the paper takes the points of D1 away.
GAP = (4.0, 8.0)
#: Where the points lie.
DOMAIN = (-2.0, 12.0)
#: Variance of the noise on the labels.
NOISE_VARIANCE = 0.05

_GRID_POINTS = 400


def label_informed(
    mean: ArrayLike, variance: ArrayLike, y: ArrayLike, noise_variance: float
) -> tuple[FloatArray, FloatArray]:
    """Condition latent marginals N(μ, s²) each on its own noisy label: p(f | x, D1) becomes p(f | x, y, D1).

    The result has variance 1 / (1/s² + 1/σ²) and mean variance · (μ/s² + y/σ²), computed in a form that also
    holds where s² is zero.

    Args:
        mean: Means μ.
        variance: Variances s² of the function, without noise, same shape.
        y: Noisy labels, same shape.
        noise_variance: Variance σ² of the labels' noise.

    Returns:
        Means and variances.

    Raises:
        DataError: If a variance is negative or the noise is not positive.

    Example:
        >>> label_informed([0.0, 0.0], [1.0, 0.0], [1.0, 1.0], noise_variance=1.0)
        (array([0.5, 0. ]), array([0.5, 0. ]))
    """
    mean, s2, y = (np.asarray(values, dtype=np.float64) for values in (mean, variance, y))
    if not noise_variance > 0 or bool((s2 < 0).any()):
        raise DataError("label_informed needs variances of at least 0 and a positive noise_variance.")
    total = s2 + noise_variance
    return (mean * noise_variance + y * s2) / total, s2 * noise_variance / total


@dataclass(frozen=True, eq=False)
class ToyExample:
    """All numbers of the illustrative example.

    Attributes:
        x1: Positions of D1, none of them in the gap.
        y1: Noisy labels of D1.
        x2: Positions of D2.
        y2: Noisy labels of D2.
        truth2: The function behind the labels of D2.
        grid: Positions over the domain.
        truth: The function on the grid.
        posterior: Prediction on the grid given D1, of new observations and of the function.
        marginal_mean: Means of p(f | x, D1) at D2.
        marginal_variance: Variances of it.
        target_mean: Means of p(f | x, y, D1) at D2.
        target_variance: Variances of it.
        noise_variance: Noise variance that the evidence chose.
        gap: Region without points of D1.
    """

    x1: FloatArray
    y1: FloatArray
    x2: FloatArray
    y2: FloatArray
    truth2: FloatArray
    grid: FloatArray
    truth: FloatArray
    posterior: Predictive
    marginal_mean: FloatArray
    marginal_variance: FloatArray
    target_mean: FloatArray
    target_variance: FloatArray
    noise_variance: float
    gap: tuple[float, float]

    @property
    def in_gap(self) -> NDArray[np.bool_]:
        """Which points of D2 lie in the gap."""
        return in_region(self.x2, self.gap)


def in_region(x: ArrayLike, region: tuple[float, float]) -> NDArray[np.bool_]:
    """Which positions lie in a closed interval.

    Example:
        >>> in_region([3.9, 4.0, 8.1], (4, 8))
        array([False,  True, False])
    """
    values = np.asarray(x, dtype=np.float64)
    return (values >= region[0]) & (values <= region[1])


def toy_example(n: int = 800, *, seed: int = 0, gap: tuple[float, float] = GAP) -> ToyExample:
    """Compute the paper's illustrative example.

    ``n`` noisy points are drawn uniformly over [−2, 12] and split at random into two halves; those of D1 in the gap
    are removed; an RBF Gaussian process is fitted on D1 by evidence; its marginals at D2 are conditioned each on its
    own label.

    Args:
        n: Number of points before the split.
        seed: Which draw and split.
        gap: Region that D1 has no points in.

    Raises:
        OptionError: If there are too few points to fit anything.

    Example:
        >>> example = toy_example(120, seed=1)
        >>> len(example.x2), bool(((example.x1 >= 4) & (example.x1 <= 8)).any())
        (60, False)
    """
    if n < 20:
        raise OptionError(f"n={n} is too few for the toy example: use at least 20.")
    table = toy(n, seed=seed, noise_variance=NOISE_VARIANCE)
    x, y = table.X[:, 0], table.y
    # A stream of its own: the table was drawn from the plain seed.
    order = np.random.default_rng([seed, 1]).permutation(n)
    first, second = order[: n // 2], order[n // 2 :]
    first = first[~in_region(x[first], gap)]
    model = GPRegressor().fit(x[first, None], y[first])
    noise = float(np.asarray(model.noise_))
    marginal = model.predict_distribution(x[second, None])
    target_mean, target_variance = label_informed(marginal.mean, marginal.latent_variance, y[second], noise)
    grid = np.linspace(*DOMAIN, _GRID_POINTS)
    return ToyExample(
        x1=x[first],
        y1=y[first],
        x2=x[second],
        y2=y[second],
        truth2=toy_function(x[second]),
        grid=grid,
        truth=toy_function(grid),
        posterior=model.predict_distribution(grid[:, None]),
        marginal_mean=marginal.mean,
        marginal_variance=marginal.latent_variance,
        target_mean=target_mean,
        target_variance=target_variance,
        noise_variance=noise,
        gap=gap,
    )
