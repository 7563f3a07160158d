"""The predictive distribution of a regression model: one Gaussian per point, or a mixture of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.numerics import DataError, OptionError

FloatArray: TypeAlias = NDArray[np.float64]

#: A seed or generator, as everywhere in scikit-learn and NumPy.
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


class Predictive:
    """Predictive distribution of the targets at ``n`` points, in the targets' own units.

    Every entry is a mixture of ``K`` Gaussians with equal weights: ``K`` is 1 for a single model and the
    number of members for an ensemble. All arrays have the shape of the targets, ``(n,)`` or
    ``(n, n_outputs)``; outputs are independent.

    Args:
        means: Means of the components, shape ``(K, n)`` or ``(K, n, n_outputs)``.
        variances: Variances of a new *observation*, noise included, same shape.
        latent_variances: Variances of the function without noise, same shape.

    Example:
        >>> p = Predictive.gaussian(mean=[0.0], variance=[4.0], latent_variance=[3.0])
        >>> low, high = p.interval(0.9)
        >>> print(low.round(2), high.round(2))
        [-3.29] [3.29]
    """

    def __init__(self, means: ArrayLike, variances: ArrayLike, latent_variances: ArrayLike):
        self.component_means: FloatArray = np.asarray(means, dtype=np.float64)
        self.component_variances: FloatArray = np.asarray(variances, dtype=np.float64)
        self.component_latent_variances: FloatArray = np.asarray(latent_variances, dtype=np.float64)
        shapes = {part.shape for part in self._parts()}
        if len(shapes) != 1 or self.component_means.ndim < 2:
            raise DataError(
                f"means, variances and latent_variances need one shape (K, n) or (K, n, n_outputs); got {shapes}."
            )

    def _parts(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.component_means, self.component_variances, self.component_latent_variances

    @classmethod
    def gaussian(cls, mean: ArrayLike, variance: ArrayLike, latent_variance: ArrayLike) -> Predictive:
        """A single Gaussian per point."""
        return cls(np.asarray(mean)[None], np.asarray(variance)[None], np.asarray(latent_variance)[None])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the targets: ``(n,)`` or ``(n, n_outputs)``."""
        return self.component_means.shape[1:]

    @property
    def n_components(self) -> int:
        """Number of Gaussians in the mixture, 1 for a single model."""
        return self.component_means.shape[0]

    @property
    def mean(self) -> FloatArray:
        """Expected target."""
        return self.component_means.mean(axis=0)

    @property
    def variance(self) -> FloatArray:
        """Variance of a new observation: uncertainty about the function plus noise."""
        return self._total_variance(self.component_variances)

    @property
    def latent_variance(self) -> FloatArray:
        """Variance of the function alone, without the noise of an observation."""
        return self._total_variance(self.component_latent_variances)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of a new observation."""
        return np.sqrt(self.variance)

    def _total_variance(self, within: FloatArray) -> FloatArray:
        # Law of total variance: the spread inside the components plus the spread of their means.
        return within.mean(axis=0) + self.component_means.var(axis=0)

    def log_prob(self, y: ArrayLike) -> FloatArray:
        """Log density of each observed target, same shape as the targets."""
        from scipy.special import logsumexp  # noqa: PLC0415  (slow to import)

        y = self._check_targets(y)
        squared = (y - self.component_means) ** 2 / self.component_variances
        log_densities = -0.5 * (squared + np.log(2 * np.pi * self.component_variances))
        return logsumexp(log_densities, axis=0) - np.log(self.n_components)

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Probability that a new observation is at most ``y``."""
        from scipy.special import ndtr  # noqa: PLC0415

        y = self._check_targets(y)
        return ndtr((y - self.component_means) / np.sqrt(self.component_variances)).mean(axis=0)

    def quantile(self, q: float | Sequence[float]) -> FloatArray:
        """Value that a new observation stays below with probability ``q``, strictly between 0 and 1.

        The array has the targets' shape; for several probabilities, one such array per probability, stacked.
        """
        levels = _probabilities(q, "q")
        result = np.stack([self._quantile(float(level)) for level in levels])
        return result[0] if np.ndim(q) == 0 else result

    def _quantile(self, level: float) -> FloatArray:
        from scipy.special import ndtri  # noqa: PLC0415

        candidates = self.component_means + ndtri(level) * np.sqrt(self.component_variances)
        low, high = candidates.min(axis=0), candidates.max(axis=0)
        if self.n_components == 1:
            return low
        # The mixture's quantile lies between the smallest and largest of its components' quantiles; 60 halvings of
        # this bracket leave less than a float64 resolves.
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central interval that holds a new observation with probability ``level``: ``(low, high)``."""
        if np.ndim(level) != 0:
            raise OptionError(f"level={level!r} must be one number: ask for each interval on its own.")
        level = float(_probabilities(level, "level")[0])
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def sample(self, n: int = 1, *, random_state: RandomState = None) -> FloatArray:
        """Draw ``n`` observations per point, ``(n, *shape)``, each point independently of the others.

        For draws that are correlated between points use the estimator's ``sample_y``.
        """
        generator = draws_from(random_state, n)
        # A member of an ensemble speaks for all points of one draw, as one function would.
        member = (generator.uniform(size=n) * self.n_components).astype(int)
        noise = generator.standard_normal(size=(n, *self.shape))
        return self.component_means[member] + noise * np.sqrt(self.component_variances[member])

    def _check_targets(self, y: ArrayLike) -> FloatArray:
        values = np.asarray(y, dtype=np.float64)
        if values.shape == self.shape or values.ndim == 0:
            return values
        if values.size == self.component_means[0].size and values.squeeze().shape == self.mean.squeeze().shape:
            return values.reshape(self.shape)
        raise DataError(f"y has shape {values.shape}; this prediction is for targets of shape {self.shape}.")

    def output(self, k: int) -> Predictive:
        """The prediction of target number ``k`` alone, of shape ``(n,)``; counted from the end if negative.

        Example:
            >>> p = Predictive.gaussian([[1.0, 2.0]], [[1.0, 4.0]], [[0.5, 3.0]])
            >>> p.output(1).mean, p.output(1).std
            (array([2.]), array([2.]))
        """
        count = self.shape[1] if len(self.shape) > 1 else 1
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not -count <= k < count:
            raise OptionError(f"output({k!r}) is not there: the targets have the numbers 0 to {count - 1}.")
        return Predictive(*(part.reshape(*part.shape[:2], count)[..., k] for part in self._parts()))

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> Predictive:
        """The prediction for some of the points, picked as from an array: ``p[:10]``, ``p[mask]``."""
        if isinstance(rows, (int, np.integer)):
            raise OptionError(f"p[{rows}] would be no array: use p[{rows}:{int(rows) + 1}].")
        return Predictive(*(part[:, rows] for part in self._parts()))

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "Gaussian" if self.n_components == 1 else f"mixture of {self.n_components} Gaussians"
        return f"Predictive({kind} at {self.shape[0]} points, shape {self.shape})"


def draws_from(random_state: RandomState, n: int) -> np.random.Generator | np.random.RandomState:
    """What to draw from; refuses a number of draws that is none."""
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
        raise OptionError(f"n={n!r} must be a whole number of at least 1.")
    return random_state if isinstance(random_state, np.random.RandomState) else np.random.default_rng(random_state)


def _probabilities(values: Any, name: str) -> FloatArray:
    """One or several probabilities as a flat array, refused unless strictly between 0 and 1."""
    try:
        levels = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name}={values!r} must be a number between 0 and 1.") from error
    if levels.ndim != 1 or levels.size == 0:
        raise OptionError(f"{name}={values!r} must be one number or a flat list of them.")
    if not bool(np.all((levels > 0) & (levels < 1))):
        raise OptionError(f"{name}={values!r} must lie strictly between 0 and 1.")
    return levels
