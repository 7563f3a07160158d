"""The scikit-learn face that all regressors share: targets are scaled, predictions are in the user's own units."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from torch import Tensor

from gdkl.calibration import held_out_count
from gdkl.estimators.base import EstimatorBase, Fit, Source, to_numpy
from gdkl.estimators.kinds import TableKind
from gdkl.estimators.loader_source import LoaderSource, read_loader
from gdkl.estimators.loaders import is_stream, refuse_malformed_batches
from gdkl.estimators.plan import Plan
from gdkl.estimators.sources import ArraySource
from gdkl.inputs import (
    FloatArray,
    TableEncoder,
    TableInput,
    TargetScaler,
    check_row_count,
    check_rows,
    check_targets,
    is_long_table,
    row_parts,
)
from gdkl.numerics import DataError, OptionError
from gdkl.predictive import Predictive
from gdkl.training import Batch, BatchSource, FittedModel, TrainingData


class RegressorBase(MultiOutputMixin, RegressorMixin, EstimatorBase):
    """Fit, predict, sample, score, save. Subclasses say how a model is trained.

    Attributes after ``fit``:
        history_: DataFrame, one row per logged step.
        n_iter_: Steps done.
        noise_: Variance of new observations around the function, as predictions have it, in the target's units; a
            number, or one per output.
        n_features_in_, feature_names_in_: As everywhere in scikit-learn.
    """

    model_: FittedModel  # pyright: ignore[reportIncompatibleVariableOverride]
    kind_: TableKind
    target_: TargetScaler
    noise_: float | FloatArray

    @abstractmethod
    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        """Train on all rows at once; ``data`` may hold several fits of one shape."""

    def _fit_sparse(self, source: BatchSource, outputs: int, held_out: Batch | None, plan: Plan) -> FittedModel:
        """Train on mini-batches; for estimators with inducing points."""
        raise OptionError(f"{type(self).__name__} has no inference with inducing points: use inference='exact'.")

    def _read(self, X: Any, y: Any, seed: int, calibrate: bool) -> Source:
        if is_stream(X, y):
            return self._read_loader(X, y, seed, calibrate)
        refuse_malformed_batches(X, y)
        # A long table is checked a part at a time, without a copy of it.
        long = is_long_table(X)
        encoder = TableEncoder.fit(X)
        rows = X if long else check_rows(self, X, reset=True, encoder=encoder)
        targets = check_targets(self, y, len(rows))
        check_row_count(len(rows))
        parts = row_parts(rows) if long else []
        checked = (check_rows(self, part, reset=first == 0, first_row=first) for first, part in parts)
        table = TableInput.fit(checked if long else (rows,), encoder)
        self.kind_, self.target_ = TableKind(table), TargetScaler.fit(targets)
        scaled = self.target_.scaled(targets)
        return ArraySource(self.kind_, rows, scaled, len(scaled))

    def _read_loader(self, X: Any, y: Any, seed: int, calibrate: bool) -> Source:
        if not self._has_sparse:
            raise OptionError(
                f"{type(self).__name__} cannot be fitted to a Dataset or DataLoader: pass arrays, or use GDKLRegressor."
            )
        if y is not None:
            raise DataError("a Dataset or DataLoader yields its own targets: call fit(loader) without y.")
        fingerprint = self._user_checkpoint() is not None
        read = read_loader(X, self._batch_option(), seed, labels=False, hold_out=calibrate, fingerprint=fingerprint)
        first = read.first
        if len(first.row_shape) != 1:
            raise DataError(f"the loader yields images of shape {first.row_shape}: a regressor takes rows (b, d).")
        self.n_features_in_ = first.row_shape[0]
        vars(self).pop("feature_names_in_", None)
        self.kind_ = TableKind(TableInput.from_moments(first.x_moments))
        self.target_ = TargetScaler.from_moments(first.y_moments, first.y.ndim == 1)
        return LoaderSource(
            self.kind_, len(self.target_.mean), read.loader, first, self.target_.scaled, read.held_out, read.filter
        )

    def _train(self, source: Source, plan: Plan) -> Fit:
        if plan.exact:
            return Fit(self._fit_exact(training_data([cast(ArraySource, source)], plan), plan))
        count = held_out_count(source.rows) if plan.preset.calibrate else 0
        batches, held_out = source.batches(plan, count)
        model = self._fit_sparse(batches, source.outputs, held_out, plan)
        if isinstance(source, LoaderSource) and source.filter is not None:
            source.filter.warn_if_missed()
        return Fit(model)

    def _adopt(self, fit: Fit) -> None:
        model = cast(FittedModel, fit.model)
        self._adopt_history(model)
        noise = to_numpy(model.noise.mean(dim=0)) * self.target_.std**2
        self.noise_ = float(noise[0]) if self.target_.is_1d else noise

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the targets at new rows.

        Args:
            X: Rows ``(m, d)``.
            return_std: Also return the standard deviation of a new observation, noise included.
            return_cov: Also return the covariance between new observations, noise included on the diagonal.

        Returns:
            The means ``(m,)`` or ``(m, n_outputs)``, alone or with the standard deviations of the same shape or the
            covariances ``(m, m)`` or ``(m, m, n_outputs)``.
        """
        if return_std and return_cov:
            raise OptionError("ask for return_std or return_cov, not both.")
        if not return_cov:
            p = self.predict_distribution(X)
            return (p.mean, p.std) if return_std else p.mean
        mean, covariance = self._joint(X)
        # An ensemble's covariance: that inside its members, and that of their means.
        centred = mean - mean.mean(dim=0)
        total = covariance.mean(dim=0) + (centred.unsqueeze(-1) * centred.unsqueeze(-2)).mean(dim=0)
        return self.target_.means(to_numpy(mean.mean(dim=0))), self.target_.covariances(to_numpy(total))

    def predict_distribution(self, X: Any) -> Predictive:
        """The whole predictive distribution at new rows, in the target's units."""
        self._require_fitted()
        noise, target = self.model_.noise.unsqueeze(-1), self.target_
        parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        # A part of a long table at a time, so that memory does not grow with it.
        for first, part in row_parts(X):
            mean, variance = self.model_.marginals(self._scaled_rows(part, first))
            total, latent = (target.variances(to_numpy(value)) for value in (variance + noise, variance))
            parts.append((target.means(to_numpy(mean)), total, latent))
        joined = [
            np.concatenate(values, axis=1) if len(parts) > 1 else values[0] for values in zip(*parts, strict=True)
        ]
        return Predictive(*joined)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> FloatArray:
        """Draw new observations at several rows together: correlated as the model believes, noise included.

        Args:
            X: Rows ``(m, d)``.
            n_samples: Number of draws.
            random_state: Seed or generator.

        Returns:
            Array ``(m, n_samples)`` or ``(m, n_outputs, n_samples)``, as scikit-learn's Gaussian process returns.
        """
        if n_samples < 1:
            raise OptionError(f"n_samples={n_samples!r} must be at least 1.")
        mean, covariance = self._joint(X)
        members, outputs, m = mean.shape
        random = check_random_state(random_state)
        member = random.randint(members, size=n_samples)
        normal = random.standard_normal(size=(n_samples, outputs, m))
        # An eigendecomposition, not a Cholesky factor: a joint posterior is singular up to the noise.
        eigenvalues, Q = np.linalg.eigh(to_numpy(covariance))
        root = Q * np.sqrt(np.clip(eigenvalues, 0, None))[..., None, :]
        draws = to_numpy(mean)[member] + np.einsum("soij,soj->soi", root[member], normal)
        return np.moveaxis(self.target_.means(draws), 0, -1)

    def _joint(self, X: Any) -> tuple[Tensor, Tensor]:
        """Scaled means ``(members, outputs, m)`` and noisy covariances ``(members, outputs, m, m)``."""
        rows = self._scaled_rows(X)
        mean, covariance = self.model_.covariance(rows)
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        return mean, covariance + self.model_.noise[..., None, None] * identity

    def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor:
        self._require_fitted()
        rows = self.kind_.input.read(self, X, first_row)
        return torch.as_tensor(rows).to(self.model_.posterior.features).unsqueeze(0)


def training_data(sources: Sequence[ArraySource], plan: Plan) -> TrainingData:
    """The rows and targets of one fit, or of several of one shape, as one batch."""
    pairs = [source.tensors(plan) for source in sources]
    return TrainingData(torch.stack([rows for rows, _ in pairs]), torch.stack([targets for _, targets in pairs]))
