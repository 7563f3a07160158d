"""Predictions at several rows together: draws, and covariances with or without the noise of observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from gdkl.estimators.base import to_numpy
from gdkl.estimators.checks import check_predictions
from gdkl.estimators.intervals import as_given
from gdkl.inputs import FloatArray, TargetScaler, joint_warp
from gdkl.numerics import OptionError
from gdkl.predictive import joint_moments
from gdkl.training import Stack

#: Part of the largest variance below which one is a rounding error: its correlations have no meaning.
_SMALLEST_VARIANCE = 1e-12


class JointMixin:
    """`sample_y` and `latent_covariance`."""

    stack_: Stack
    target_: TargetScaler

    if TYPE_CHECKING:

        def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor: ...

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> FloatArray:
        """Draw new observations at several rows together: correlated as the model believes, noise included.

        Args:
            X: Rows ``(m, d)``.
            n_samples: Number of draws.
            random_state: Seed or generator.

        Returns:
            ``(m, n_samples)`` or ``(m, n_outputs, n_samples)``, as scikit-learn's Gaussian process returns; draws come
            first in `Predictive.sample`, which knows each row by itself.
        """
        if n_samples < 1:
            raise OptionError(f"n_samples={n_samples!r} must be at least 1.")
        means, covariances, weights = self._joint(X)
        members, outputs, m = means.shape
        random = check_random_state(random_state)
        # One component speaks for all rows of a draw.
        chosen = [random.choice(members, size=n_samples, p=weights[:, k]) for k in range(outputs)]
        normal = random.standard_normal(size=(n_samples, outputs, m))
        # An eigendecomposition, not a Cholesky factor: a joint posterior is singular up to the noise.
        eigenvalues, Q = np.linalg.eigh(covariances)
        root = Q * np.sqrt(np.clip(eigenvalues, 0, None))[..., None, :]
        draws = [means[one, k] + np.einsum("sij,sj->si", root[one, k], normal[:, k]) for k, one in enumerate(chosen)]
        warped = self.target_.means(np.stack(draws, axis=1))
        warp = joint_warp(self.target_.warps)
        return as_given(X, np.moveaxis(warped if warp is None else warp.inverse(warped), 0, -1))

    def latent_covariance(self, X: Any) -> FloatArray:
        """Covariance of the function between rows, without the noise that ``predict(X, return_cov=True)`` adds.

        Where the target is warped, of the function's inverse; the diagonal is `Predictive.latent_variance`.

        Args:
            X: Rows ``(m, d)``.

        Returns:
            ``(m, m)``, or ``(m, m, n_outputs)``.

        Example:
            >>> from gdkl import NNGPRegressor
            >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
            >>> model = NNGPRegressor().fit(X, np.sin(X[:, 0]))
            >>> latent, (_, noisy) = model.latent_covariance(X[:3]), model.predict(X[:3], return_cov=True)
            >>> np.allclose(noisy - latent, model.noise_ * np.eye(3))
            True
        """
        return as_given(X, self._moments(X, noise=False)[1])

    def _moments(self, X: Any, *, noise: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance between rows in the target's units."""
        means, covariances, weights = self._joint(X, noise=noise)
        target = self.target_
        outputs = [
            joint_moments(means[:, k] * std + mean, covariances[:, k] * std**2, weights[:, k], warp)
            for k, (mean, std, warp) in enumerate(zip(target.mean, target.std, target.warps, strict=True))
        ]
        mean, covariance = (np.stack(values, axis=-1) for values in zip(*outputs, strict=True))
        return (mean[..., 0], covariance[..., 0]) if target.is_1d else (mean, covariance)

    def _joint(self, X: Any, *, noise: bool = True) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Scaled means ``(K, outputs, m)``, covariances ``(K, outputs, m, m)`` and weights of the components."""
        rows = self._scaled_rows(X)
        with torch.no_grad():
            means, covariances, noises = self.stack_.joint(rows)
        check_predictions(to_numpy(means), to_numpy(covariances))
        diagonal = covariances.diagonal(dim1=-2, dim2=-1)
        if noise:
            further = noises.expand_as(diagonal)
        else:
            smallest = _SMALLEST_VARIANCE * diagonal.amax(dim=-1, keepdim=True)
            further = diagonal.clamp_min(smallest) - diagonal
        total = covariances + torch.diag_embed(further)
        return to_numpy(means), to_numpy(total), to_numpy(self.stack_.component_weights())
