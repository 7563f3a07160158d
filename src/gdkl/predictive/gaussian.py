"""The predictive distribution of a regression model: Gaussian or a mixture, as it is or through a warp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.numerics import DataError, OptionError
from gdkl.predictive.mixture import FloatArray, GaussianMixture

if TYPE_CHECKING:
    from gdkl.inputs import Warp

#: A seed or generator, as everywhere in scikit-learn and NumPy.
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


class Predictive:
    """Predictive distribution of the targets at ``n`` points, in the targets' own units.

    Every entry is a mixture of ``K`` Gaussians: ``K`` is 1 for a single model and the number of models for an
    ensemble. The mixture is that of the warped target where there is a warp; what is read off it is in the target's
    own units all the same. All arrays have the shape of the targets, ``(n,)`` or ``(n, n_outputs)``; outputs are
    independent.

    Args:
        means: Means of the components in warped units, shape ``(K, n)`` or ``(K, n, n_outputs)``.
        variances: Variances of a new *observation*, noise included, same shape and units.
        latent_variances: Variances of the function without noise, same shape and units.
        weights: Of the components, ``(K,)`` or ``(K, n_outputs)``; they sum to 1 and are equal by default.
        warps: One per output, or None for an output without; none by default.

    Example:
        >>> p = Predictive.gaussian(mean=[0.0], variance=[4.0], latent_variance=[3.0])
        >>> low, high = p.interval(0.9)
        >>> print(low.round(2), high.round(2))
        [-3.29] [3.29]
        >>> from gdkl.inputs import LogWarp
        >>> p = Predictive([[0.0], [1.0]], [[1.0], [1.0]], [[0.5], [0.5]], weights=[0.9, 0.1], warps=[LogWarp()])
        >>> p.mean.round(3), p.quantile(0.5).round(3)
        (array([1.932]), array([1.093]))
    """

    def __init__(
        self,
        means: ArrayLike,
        variances: ArrayLike,
        latent_variances: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        warps: Sequence[Warp | None] | None = None,
    ):
        self.component_means: FloatArray = np.asarray(means, dtype=np.float64)
        self.component_variances: FloatArray = np.asarray(variances, dtype=np.float64)
        self.component_latent_variances: FloatArray = np.asarray(latent_variances, dtype=np.float64)
        shapes = {part.shape for part in self._parts()}
        if len(shapes) != 1 or self.component_means.ndim < 2:
            raise DataError(
                f"means, variances and latent_variances need one shape (K, n) or (K, n, n_outputs); got {shapes}."
            )
        K, outputs = self.n_components, self._n_outputs
        w = np.full(K, 1 / K) if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape not in ((K,), (K, outputs)):
            raise DataError(f"weights have shape {w.shape}: give ({K},) or ({K}, {outputs}).")
        if not bool((w >= 0).all() and (np.abs(w.sum(axis=0) - 1) < 1e-6).all()):
            raise DataError("weights must be 0 or more and sum to 1: divide them by their sum.")
        self.weights: FloatArray = w / w.sum(axis=0)
        self.warps: tuple[Warp | None, ...] = (None,) * outputs if warps is None else tuple(warps)
        if len(self.warps) != outputs:
            raise DataError(f"{len(self.warps)} warps do not fit {outputs} outputs: give a warp or None for each.")
        self._warp = None
        if any(self.warps):
            from gdkl.inputs import joint_warp  # noqa: PLC0415  (slow to import)

            self._warp = joint_warp(self.warps)

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
    def _n_outputs(self) -> int:
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def mean(self) -> FloatArray:
        """Expected target."""
        return self._moments(self.component_variances)[0]

    @property
    def variance(self) -> FloatArray:
        """Variance of a new observation: uncertainty about the function plus noise."""
        return self._moments(self.component_variances)[1]

    @property
    def latent_variance(self) -> FloatArray:
        """Variance of the function alone, without the noise of an observation; of its inverse where there is a warp."""
        return self._moments(self.component_latent_variances)[1]

    @property
    def std(self) -> FloatArray:
        """Standard deviation of a new observation."""
        return np.sqrt(self.variance)

    def log_prob(self, y: ArrayLike) -> FloatArray:
        """Log density of each observed target, same shape as the targets."""
        y = self._check_targets(y)
        log_density = self._mixture().log_prob(self._forward(y))
        return log_density if self._warp is None else log_density + self._warp.log_derivative(y)

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Probability that a new observation is at most ``y``."""
        return self._mixture().cdf(self._forward(self._check_targets(y)))

    def quantile(self, q: float | Sequence[float]) -> FloatArray:
        """Value that a new observation stays below with probability ``q``, strictly between 0 and 1.

        The array has the targets' shape; for several probabilities, one such array per probability, stacked.
        """
        mixture = self._mixture()
        result = self._inverse(np.stack([mixture.quantile(float(level)) for level in _probabilities(q, "q")]))
        return result[0] if np.ndim(q) == 0 else result

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central interval that holds a new observation with probability ``level``: ``(low, high)``."""
        if np.ndim(level) != 0:
            raise OptionError(f"level={level!r} must be one number: ask for each interval on its own.")
        level = float(_probabilities(level, "level")[0])
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return low, high

    def crps(self, y: ArrayLike) -> FloatArray:
        """Continuous ranked probability score of each observed target, in its units: E|Y − y| − ½·E|Y − Y'|.

        Example:
            >>> Predictive.gaussian([0.0], [1.0], [0.5]).crps([0.0]).round(4)
            array([0.2337])
        """
        y = self._check_targets(y)
        if self._warp is None:
            return self._mixture().crps(y)
        from gdkl.numerics import chunk_slices  # noqa: PLC0415  (slow to import)

        scores = np.zeros_like(y)
        # A part of the rows at a time: the integral has many nodes.
        for rows in chunk_slices(len(self), 2000):
            mixture = self[rows]._mixture()
            scores[rows] = mixture.warped_crps(y[rows], self._warp.forward, self._warp.inverse)
        return scores

    def sample(self, n: int = 1, *, random_state: RandomState = None) -> FloatArray:
        """Draw ``n`` observations per point, ``(n, *shape)``, each point independently of the others.

        For draws that are correlated between points use the estimator's ``sample_y``, which returns them last,
        ``(*shape, n)``, as scikit-learn's Gaussian process does.
        """
        return self._inverse(self._mixture().sample(n, draws_from(random_state, n)))

    def _mixture(self, variances: FloatArray | None = None) -> GaussianMixture:
        """The mixture of warped targets, or of the function with its own variances."""
        # Weights are per component and output, not per point: (K, 1), (K, 1, 1) or (K, 1, n_outputs).
        weights = self.weights.reshape(self.n_components, *(1, -1)[: len(self.shape)])
        return GaussianMixture(
            self.component_means, self.component_variances if variances is None else variances, weights
        )

    def _moments(self, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._mixture(variances).moments(None if self._warp is None else self._warp.inverse)

    def _forward(self, y: FloatArray) -> FloatArray:
        return y if self._warp is None else self._warp.forward(y)

    def _inverse(self, z: FloatArray) -> FloatArray:
        return z if self._warp is None else self._warp.inverse(z)

    def _check_targets(self, y: ArrayLike) -> FloatArray:
        values = np.asarray(y, dtype=np.float64)
        if values.ndim == 0:
            return np.full(self.shape, values)
        if [size for size in values.shape if size != 1] == [size for size in self.shape if size != 1]:
            return values.reshape(self.shape)
        raise DataError(f"y has shape {values.shape}; this prediction is for targets of shape {self.shape}.")

    def output(self, k: int) -> Predictive:
        """The prediction of target number ``k`` alone, of shape ``(n,)``; counted from the end if negative.

        Example:
            >>> p = Predictive.gaussian([[1.0, 2.0]], [[1.0, 4.0]], [[0.5, 3.0]])
            >>> p.output(1).mean, p.output(1).std
            (array([2.]), array([2.]))
        """
        count = self._n_outputs
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not -count <= k < count:
            raise OptionError(f"output({k!r}) is not there: the targets have the numbers 0 to {count - 1}.")
        parts = (part.reshape(*part.shape[:2], count)[..., k] for part in self._parts())
        weights = self.weights if self.weights.ndim == 1 else self.weights[:, k]
        return Predictive(*parts, weights=weights, warps=[self.warps[k]])

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> Predictive:
        """The prediction for some of the points, picked as from an array: ``p[:10]``, ``p[mask]``."""
        if isinstance(rows, (int, np.integer)):
            raise OptionError(f"p[{rows}] would be no array: use p[{rows}:{int(rows) + 1}].")
        return Predictive(*(part[:, rows] for part in self._parts()), weights=self.weights, warps=self.warps)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "Gaussian" if self.n_components == 1 else f"mixture of {self.n_components} Gaussians"
        kind = f"warped {kind}" if any(self.warps) else kind
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
