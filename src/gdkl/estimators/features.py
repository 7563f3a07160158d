"""The student's features as what a transformer gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Tensor

from gdkl.estimators.base import to_numpy
from gdkl.inputs import FloatArray
from gdkl.methods import STUDENT
from gdkl.numerics import OptionError
from gdkl.training import FittedModel, Stack


class FeaturesMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """`transform`, `fit_transform`, `set_output` and the names of features."""

    model_: Any
    stack_: Stack

    if TYPE_CHECKING:

        def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor: ...

    def transform(self, X: Any) -> FloatArray:
        """The features that the student's networks have learned, ``(m, features)``.

        Those of several networks, folds or members, stand beside each other.

        Example:
            >>> import numpy as np
            >>> from gdkl import GDKLRegressor
            >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
            >>> model = GDKLRegressor(n_iter=5, feature_net=[8, 3], random_state=0).fit(X, np.sin(X[:, 0]))
            >>> model.transform(X).shape  # three for each of four folds
            (40, 12)
        """
        rows = self._scaled_rows(X)
        if STUDENT not in self.stack_.models:
            raise OptionError("there is no student: its guides predict alone. Fit to more rows for features.")
        features = cast(FittedModel, self.model_).features(rows)
        return to_numpy(features.transpose(0, 1).flatten(1))

    @property
    def _n_features_out(self) -> int:
        """Columns of what `transform` returns, for the names of features."""
        posterior = cast(FittedModel, self.model_).posterior
        return posterior.weights.shape[0] * posterior.features.shape[-1]
