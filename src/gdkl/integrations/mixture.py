"""A fitted regressor as functions of tensors: joint Gaussians with gradients, conditioned on further observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import hermite_e
from torch import Tensor
from torch.autograd import Function

from gdkl.estimators.regression import RegressorBase
from gdkl.gp import ExactPosterior, Solver
from gdkl.inputs import Warp
from gdkl.numerics import DataError, OptionError

#: Quadrature nodes, and terms of the expansion of a warp's inverse, as `gdkl.predictive` has them.
_NODES, _TERMS = 64, 24

#: Scaled targets that a warp cannot give, such as the logarithm of a sample below 0, count as so many deviations away.
_FARTHEST = 10.0

_MATRIX_NAME = "the covariance matrix of the new observations"


class Gaussians(NamedTuple):
    """K jointly Gaussian components of scaled targets: means ``(..., K, outputs, q)``, covariances, noise by row."""

    mean: Tensor
    covariance: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Observed:
    """Observations beside the training rows: rows ``(..., n, d)``, scaled targets ``(..., outputs, n)``.

    ``noise`` is their variance for each component, scaled, ``(..., K, outputs, n)``.
    """

    X: Tensor
    y: Tensor
    noise: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """Leading dimensions: sets of observations."""
        return torch.broadcast_shapes(self.X.shape[:-2], self.y.shape[:-2])

    def join(self, other: Observed) -> Observed:
        """Both, one behind the other."""
        batch = torch.broadcast_shapes(self.batch_shape, other.batch_shape)

        def joined(first: Tensor, second: Tensor, own: int, dim: int) -> Tensor:
            return torch.cat([part.expand(*batch, *part.shape[-own:]) for part in (first, second)], dim)

        return Observed(
            joined(self.X, other.X, 2, -2), joined(self.y, other.y, 2, -1), joined(self.noise, other.noise, 3, -1)
        )


@dataclass(frozen=True, eq=False)
class Mixture:
    """What a fitted regressor says of rows ``(..., q, d)``, one joint distribution for each of the leading dimensions.

    Attributes:
        estimator: Fitted, with exact inference, to a table of numbers.
        outputs: Which of its outputs.
        observed: Observations beyond its training rows; None for none.
        known_noise: Noise variance of new observations beside the noise that was learned, where training rows have
            known ones; in squared units of the targets.
    """

    estimator: RegressorBase
    outputs: tuple[int, ...]
    observed: Observed | None = None
    known_noise: float = 0.0

    @classmethod
    def of(cls, estimator: Any) -> Mixture:
        """All outputs of an estimator, refused if it cannot be a function of tensors."""
        if not isinstance(estimator, RegressorBase):
            name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
            raise OptionError(f"{name} is no regressor of gdkl: pass a fitted GDKLRegressor or another one.")
        estimator._require_fitted()
        if estimator.inference_ != "exact":
            raise OptionError("a model with inducing points cannot be conditioned: fit with inference='exact'.")
        models = estimator.stack_.models.values()
        if not all(isinstance(getattr(model, "posterior", None), ExactPosterior) for model in models):
            raise OptionError(f"{type(estimator).__name__} has no Gaussian process given all rows: pass another one.")
        encoder = estimator.kind_.input.encoder
        if encoder is not None and not encoder.plain:
            raise DataError("the table has text, dates or missing cells: fit to an array of numbers.")
        return cls(estimator, tuple(range(len(estimator.target_.mean))))

    @property
    def columns(self) -> int:
        """Columns of the rows."""
        return self.estimator.n_features_in_

    @property
    def batch_shape(self) -> torch.Size:
        """Leading dimensions of the observations."""
        return torch.Size() if self.observed is None else self.observed.batch_shape

    def subset(self, index: Sequence[int]) -> Mixture:
        """Some of the outputs."""
        chosen = list(index)
        seen = self.observed
        if seen is not None:
            seen = replace(seen, y=seen.y[..., chosen, :], noise=seen.noise[..., chosen, :])
        return replace(self, outputs=tuple(self.outputs[k] for k in chosen), observed=seen)

    def with_known_noise(self, variance: float) -> Mixture:
        """The same where new observations have a known noise variance, too."""
        return replace(self, known_noise=variance)

    def moments(self, X: Tensor, *, noisy: bool = False) -> tuple[Tensor, Tensor]:
        """Mean ``(..., outputs, q)`` and covariance ``(..., outputs, q, q)`` of the mixture, in the targets' units.

        Args:
            X: Rows ``(..., q, d)``, to which gradients flow.
            noisy: Whether of new observations rather than of the function.
        """
        mean, covariance, noise = self._gaussians(X)
        if noisy:
            covariance = covariance + torch.diag_embed(noise.expand_as(mean))
        shift, scale = (part.unsqueeze(-1) for part in self._scale(mean))
        mean, covariance = shift + scale * mean, scale.square().unsqueeze(-1) * covariance
        if noisy and self.known_noise:
            covariance = covariance + self.known_noise * torch.eye(X.shape[-2]).to(covariance)
        weights = self._take(self.estimator.stack_.component_weights().to(mean), -1).unsqueeze(-1)
        warps = [self.estimator.target_.warps[k] for k in self.outputs]
        if any(warps):
            parts = zip(mean.unbind(-2), covariance.unbind(-3), warps, strict=True)
            means, covariances = zip(*(_unwarped(*part) for part in parts), strict=True)
            mean, covariance = torch.stack(means, dim=-2), torch.stack(covariances, dim=-3)
        total = (weights * mean).sum(dim=-3)
        away = mean - total.unsqueeze(-3)
        weights = weights.unsqueeze(-1)
        spread = (weights * (away.unsqueeze(-1) * away.unsqueeze(-2))).sum(dim=-4)
        return total, (weights * covariance).sum(dim=-4) + spread

    def condition(self, X: Tensor, Y: Tensor, noise: Tensor | None = None) -> Mixture:
        """Also given observations: hyperparameters and weights of the components stay.

        Args:
            X: Rows ``(..., n, d)``.
            Y: Targets ``(..., n, outputs)`` in their own units; leading dimensions broadcast with those of ``X``.
            noise: Their noise variances, of the shape of ``Y``; None for the noise of the components.
        """
        y = self._scaled(Y.mT.double())
        parts = self.estimator.stack_.models.values()
        own = torch.cat([model.posterior.noise for model in parts]).to(y)
        # Outliers are components of their own, which know the same of the function.
        own = self._take(torch.cat([own] * (len(self.estimator.stack_.component_weights()) // len(own))), -1)
        per_unit = self._scale(y)[1].square()
        if noise is None:
            variance = (own + self.known_noise / per_unit).unsqueeze(-1).expand(*own.shape, y.shape[-1])
        else:
            if any(self.estimator.target_.warps):
                raise OptionError("noise of observations has no fixed meaning under a warp: fit with warp=None.")
            scaled = noise.mT.double() / per_unit.unsqueeze(-1)
            variance = scaled.unsqueeze(-3).expand(*scaled.shape[:-2], *own.shape, y.shape[-1])
        new = Observed(X, y, variance)
        return replace(self, observed=new if self.observed is None else self.observed.join(new))

    def _gaussians(self, X: Tensor) -> Gaussians:
        """The components' latent functions at rows, given all observations, and the noise of new ones."""
        seen = self.observed
        if seen is None:
            return self._known(X)
        n, q = seen.X.shape[-2], X.shape[-2]
        if not n:
            mean, covariance, noise = self._known(X)
            batch = torch.broadcast_shapes(seen.batch_shape, X.shape[:-2])
            return Gaussians(
                mean.expand(*batch, *mean.shape[-3:]), covariance.expand(*batch, *covariance.shape[-4:]), noise
            )
        batch = torch.broadcast_shapes(seen.X.shape[:-2], X.shape[:-2])
        rows = [part.to(X).expand(*batch, *part.shape[-2:]) for part in (seen.X, X)]
        mean, covariance, noise = self._known(torch.cat(rows, dim=-2))
        solver = Solver.of(covariance[..., :n, :n], seen.noise, name=_MATRIX_NAME)
        A = solver.whiten(covariance[..., :n, n:])
        v = solver.whiten((seen.y.unsqueeze(-3) - mean[..., :n]).unsqueeze(-1))
        mean = mean[..., n:] + (A.mT @ v).squeeze(-1)
        covariance = covariance[..., n:, n:] - A.mT @ A
        return Gaussians(mean, covariance.expand(*mean.shape, q), noise[..., -q:] if noise.shape[-1] > 1 else noise)

    def _known(self, X: Tensor) -> Gaussians:
        """The same given the training rows alone."""
        rows = self.estimator.kind_.input.tensor_rows(X).unsqueeze(-3)
        found = self.estimator.stack_.joint(rows.to(self.estimator.model_.posterior.features))
        mean, covariance, noise = (part.to(X.device, torch.float64) for part in found)
        return Gaussians(self._take(mean, -2), self._take(covariance, -3), self._take(noise, -2))

    def _take(self, values: Tensor, dim: int) -> Tensor:
        """The chosen outputs."""
        return values.index_select(dim, torch.tensor(self.outputs, device=values.device))

    def _scale(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the warped targets, ``(outputs,)``."""
        target, chosen = self.estimator.target_, list(self.outputs)
        mean, std = (torch.as_tensor(values[chosen]).to(like) for values in (target.mean, target.std))
        return mean, std

    def _scaled(self, y: Tensor) -> Tensor:
        """Warped and standardised targets, ``(..., outputs, n)``, with gradients."""
        shift, scale = (part.unsqueeze(-1) for part in self._scale(y))
        warps = [self.estimator.target_.warps[k] for k in self.outputs]
        if any(warps):
            each = [_Forward.apply(y[..., k, :], warp) if warp else y[..., k, :] for k, warp in enumerate(warps)]
            y = torch.stack(each, dim=-2)
        return torch.nan_to_num((y - shift) / scale, nan=torch.nan, neginf=-_FARTHEST, posinf=_FARTHEST)


class _Inverse(Function):
    """Targets of warped ones. Warps are functions of arrays; that they have derivatives gives the gradient."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, warp: Warp) -> Tensor:
        y = warp.inverse(z.detach().cpu().numpy())
        ctx.save_for_backward(torch.as_tensor(np.exp(-warp.log_derivative(y))).to(z))
        return torch.as_tensor(y).to(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None


class _Forward(Function):
    """Warped targets, likewise."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, warp: Warp) -> Tensor:
        values = y.detach().cpu().numpy()
        ctx.save_for_backward(torch.as_tensor(np.exp(warp.log_derivative(values))).to(y))
        return torch.as_tensor(warp.forward(values)).to(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None


def _unwarped(mean: Tensor, covariance: Tensor, warp: Warp | None) -> tuple[Tensor, Tensor]:
    """Means ``(..., q)`` and covariances ``(..., q, q)`` behind a warp's inverse, as `joint_moments` has them."""
    if warp is None:
        return mean, covariance
    deviation = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(mean.dtype).tiny).sqrt()
    nodes, weights = hermite_e.hermegauss(_NODES)
    z, w = (torch.as_tensor(values).to(mean) for values in (nodes, weights / weights.sum()))
    polynomials = [torch.ones_like(z), z]
    for k in range(2, _TERMS):
        polynomials.append((z * polynomials[-1] - (k - 1) ** 0.5 * polynomials[-2]) / k**0.5)
    g = _Inverse.apply(mean.unsqueeze(-1) + deviation.unsqueeze(-1) * z, warp)
    c = g @ (w.unsqueeze(-1) * torch.stack(polynomials, dim=-1))
    correlation = covariance / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))
    total, power = torch.zeros_like(covariance), torch.ones_like(covariance)
    for k in range(1, _TERMS):
        power = power * correlation
        total = total + c[..., :, None, k] * c[..., None, :, k] * power
    # Variances are by quadrature alone, as those of single rows are.
    variance = (g - c[..., :1]).square() @ w
    own = torch.eye(mean.shape[-1], dtype=torch.bool, device=mean.device)
    return c[..., 0], torch.where(own, torch.diag_embed(variance), total)
