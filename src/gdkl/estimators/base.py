"""The scikit-learn face that all regressors share: checks and scales on the way in, own units on the way out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from torch import Tensor

from gdkl.estimators.batch_lists import is_stream, refuse_malformed_batches
from gdkl.estimators.common import EstimatorBase, draw_seed, to_numpy
from gdkl.estimators.loaders import RegressionLoader, as_loader
from gdkl.estimators.resuming import digest
from gdkl.estimators.scaling import Scaler
from gdkl.estimators.streams import TableStream, is_long_table, row_parts
from gdkl.estimators.student import TABLE_BATCH, sparse_precisions
from gdkl.estimators.validation import (
    check_number,
    check_row_count,
    check_rows,
    check_targets,
    refuse_fit_options,
)
from gdkl.methods import FittedModel, TrainingData
from gdkl.numerics import DataError, OptionError, resolve_device, resolve_dtype
from gdkl.predictive import FloatArray, Predictive
from gdkl.training import Batch, BatchSource, Callback


class RegressorBase(MultiOutputMixin, RegressorMixin, EstimatorBase):
    """Fit, predict, sample, score, save. Subclasses say how a model is trained, in `_fit_model`.

    Attributes after ``fit``:
        history_: DataFrame, one row a logged step.
        n_iter_: Steps done.
        noise_: Variance of new observations around the function, as predictions have it, in the target's units; a
            number or one an output.
        n_features_in_, feature_names_in_: As everywhere in scikit-learn.
    """

    #: Whether sparse inference keeps rows from training for the noise of its predictions. The classic, DKL, learns its
    #: noise from the evidence bound of the rows that it is trained on, and is trained on all.
    _noise_of_held_out_rows: ClassVar[bool] = False

    model_: FittedModel
    scaler_: Scaler
    noise_: float | FloatArray
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @abstractmethod
    def _check_options(self) -> None:
        """Refuse option values that are not allowed, before anything is computed."""

    @abstractmethod
    def _fit_model(self, data: TrainingData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        """Train on scaled data of one member."""

    def _chooses_sparse(self, rows: int, outputs: int) -> bool:
        """Whether inducing points are to be used for so many rows; an estimator without them never does."""
        return False

    def _fit_sparse(
        self, source: BatchSource, outputs: int, held_out: Batch | None, seed: int, callbacks: Sequence[Callback]
    ) -> FittedModel:
        """Train over batches of scaled rows; for estimators with inducing points."""
        raise OptionError(
            f"{type(self).__name__} cannot be fitted to a Dataset or DataLoader: pass arrays, or use GDKLRegressor."
        )

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Fit to a table.

        Args:
            X: Rows ``(n, d)``: array (a memory-mapped one is not copied where inference is sparse), DataFrame or nested
                list of finite numbers. GDKL and DKL: or a torch Dataset, DataLoader or list of batches that yields
                pairs of rows and targets, and then no ``y``.
            y: Targets ``(n,)`` or ``(n, n_outputs)``; several outputs are modelled independently.
            **unsupported: Nothing: ``sample_weight`` is refused with a clear error.

        Returns:
            The estimator itself.
        """
        refuse_fit_options(unsupported)
        check_number("verbose", self.verbose, low=0, strict=False, integer=True, boolean=True)
        self._check_options()
        device, dtype = resolve_device(self.device), resolve_dtype(self.dtype)
        # Training needs gradients, whatever the caller has switched off around it.
        with torch.inference_mode(False), torch.enable_grad():
            if is_stream(X, y):
                model, scaler = self._fit_loader(X, y, device)
            else:
                refuse_malformed_batches(X, y)
                # A long table is checked a part at a time, once it is known that no copy of it is needed.
                long = is_long_table(X)
                rows = X if long else check_rows(self, X, reset=True)
                targets = check_targets(self, y, len(rows))
                check_row_count(len(rows))
                if self._chooses_sparse(len(rows), 1 if targets.ndim == 1 else targets.shape[1]):
                    model, scaler = self._fit_table_stream(TableStream.read(self, rows, targets), device)
                else:
                    rows = check_rows(self, X, reset=True) if long else rows
                    scaler = Scaler.fit(rows, targets, getattr(self, "feature_names_in_", None))
                    data = TrainingData(
                        torch.as_tensor(scaler.rows(rows), dtype=dtype, device=device).unsqueeze(0),
                        torch.as_tensor(scaler.targets(targets), dtype=dtype, device=device).unsqueeze(0),
                    )
                    seed, callbacks = draw_seed(self.random_state), self._callbacks()
                    model = self._fit_model(data, seed, callbacks)
        self._adopt(model, scaler)
        self._tell_of_interrupt(model.outcome)
        return self

    def _fit_table_stream(self, table: TableStream, device: torch.device) -> tuple[FittedModel, Scaler]:
        """Train over batches of a table."""
        seed = draw_seed(self.random_state)
        network, algebra = sparse_precisions(self.dtype)
        size = getattr(self, "batch_size", None) or TABLE_BATCH
        source, held_out = table.batches(size, seed, device, network, algebra, hold_out=self._noise_of_held_out_rows)
        callbacks = self._callbacks(source.batch_size)
        with self._resumable(seed, lambda: digest(table.X, table.targets.T)) as checkpoints:
            model = self._fit_sparse(source, len(table.targets), held_out, seed, callbacks)
            if checkpoints is not None:
                checkpoints.end(model.outcome)
        return model, table.scaler

    def _fit_loader(self, X: Any, y: Any, device: torch.device) -> tuple[FittedModel, Scaler]:
        """Train over the batches that a Dataset or DataLoader yields."""
        if y is not None:
            raise DataError("a Dataset or DataLoader yields its own targets: call fit(loader) without y.")
        if getattr(self, "inference", "sparse") == "exact":
            raise OptionError(
                "inference='exact' needs all rows at once: pass arrays instead of a Dataset or DataLoader."
            )
        seed = draw_seed(self.random_state)
        network, algebra = sparse_precisions(self.dtype)
        loader = as_loader(X, getattr(self, "batch_size", None), seed)
        stream = RegressionLoader.read(
            loader,
            seed,
            hold_out=self._noise_of_held_out_rows,
            fingerprint=getattr(self, "checkpoint_dir", None) is not None,
        )
        told = stream.told
        if len(told.row_shape) != 1 or told.y_moments is None:
            raise DataError(f"the loader yields images of shape {told.row_shape}: a regressor takes rows (b, d).")
        self.n_features_in_ = told.row_shape[0]
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        check_row_count(told.rows)
        scaler = Scaler.from_moments(told.x_moments, told.y_moments, not told.y_shape)
        source, held_out = stream.batches(scaler, device, network, algebra)
        self.inference_ = "sparse"
        callbacks = self._callbacks(source.batch_size)
        with self._resumable(seed, lambda: told.fingerprint, told.order) as checkpoints:
            model = self._fit_sparse(source, len(scaler.y_mean), held_out, seed, callbacks)
            if checkpoints is not None:
                checkpoints.end(model.outcome)
        if stream.filter is not None:
            stream.filter.tell()
        return model, scaler

    def _adopt(self, model: FittedModel, scaler: Scaler) -> None:
        """Take over a trained model; `gdkl.load` comes this way too."""
        self.model_ = model
        self.scaler_ = scaler
        self.history_ = pd.DataFrame(model.history)
        self.n_iter_ = model.outcome.steps if model.outcome is not None else len(model.history)
        noise = model.noise.mean(dim=0).double().cpu().numpy() * scaler.y_std**2
        self.noise_ = float(noise[0]) if scaler.y_is_1d else noise

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
        return self.scaler_.mean(to_numpy(mean.mean(dim=0))), self.scaler_.covariance(to_numpy(total))

    def predict_distribution(self, X: Any) -> Predictive:
        """The whole predictive distribution at new rows, in the target's units."""
        self._require_fitted()
        noise = self.model_.noise.unsqueeze(-1)
        parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        # A part of a long table at a time, so that memory does not grow with it.
        for first, part in row_parts(X):
            mean, variance = self.model_.marginals(self._scaled_rows(part, first))
            parts.append(
                (
                    self.scaler_.mean(to_numpy(mean)),
                    self.scaler_.variance(to_numpy(variance + noise)),
                    self.scaler_.variance(to_numpy(variance)),
                )
            )
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
        return np.moveaxis(self.scaler_.mean(draws), 0, -1)

    def _joint(self, X: Any) -> tuple[Tensor, Tensor]:
        """Scaled means ``(members, outputs, m)`` and noisy covariances ``(members, outputs, m, m)``."""
        rows = self._scaled_rows(X)
        mean, covariance = self.model_.covariance(rows)
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        return mean, covariance + self.model_.noise[..., None, None] * identity

    def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor:
        self._require_fitted()
        rows = self.scaler_.rows(check_rows(self, X, reset=False, first_row=first_row))
        return torch.as_tensor(rows).to(self.model_.posterior.features).unsqueeze(0)
