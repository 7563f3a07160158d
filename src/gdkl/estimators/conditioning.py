"""More rows for a fitted regressor, with the weights that it has."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from gdkl.estimators.row_noise import numbers_per_row
from gdkl.inputs import TargetScaler, check_targets
from gdkl.numerics import DataError, OptionError
from gdkl.training import FittedModel, Stack


class ConditioningMixin(BaseEstimator):
    """`condition`: further rows in every posterior of a fitted regressor."""

    model_: FittedModel
    stack_: Stack
    target_: TargetScaler

    if TYPE_CHECKING:

        def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor: ...

    def condition(self, X: Any, y: Any, noise_var: Any = None) -> Self:
        """A new estimator that knows further rows; this one stays as it is.

        Networks, hyperparameters, weights of the stack and scales of columns and targets stay; every posterior is the
        one given all rows. It costs O(n²m) operations for m rows more, and needs exact inference. ``fit`` again, with
        all rows, once they are many: scales and hyperparameters are those of the rows of ``fit``.

        Args:
            X: Rows ``(m, d)``, with the columns of ``fit``.
            y: Targets ``(m,)`` or ``(m, n_outputs)``.
            noise_var: As in ``fit``.

        Example:
            >>> from gdkl import NNGPRegressor
            >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
            >>> model = NNGPRegressor().fit(X[:20], np.sin(X[:20, 0]))
            >>> more = model.condition(X[20:], np.sin(X[20:, 0]))
            >>> more.score(X, np.sin(X[:, 0])) > model.score(X, np.sin(X[:, 0]))
            True
        """
        rows, target = self._scaled_rows(X), self.target_
        values = check_targets(self, y, rows.shape[1])
        if values.size != rows.shape[1] * len(target.mean):
            raise DataError(f"y has shape {values.shape}, and fit had {len(target.mean)} target(s): give as many.")
        scaled = torch.as_tensor(target.scaled(values)).to(self.model_.posterior.weights)
        if not bool(torch.isfinite(scaled).all()):
            raise DataError("y has values beyond the warp of the target, such as 0 under a logarithm: fit to all rows.")
        further = None
        if noise_var is not None:
            if any(target.warps) or len(target.mean) > 1:
                raise OptionError("noise_var is for one target without a warp: use warp=None, and a model per target.")
            added = numbers_per_row("noise_var", noise_var, rows.shape[1]) / target.std[0] ** 2
            further = torch.as_tensor(np.asarray(added)).to(scaled)[None, None]
        more = copy(self)
        # Where the rows of fit came from is not where these did.
        vars(more).pop("provenance_", None)
        more.stack_ = self.stack_.condition(rows, scaled[None], further)
        more.model_ = next(reversed(more.stack_.models.values()))
        return more
