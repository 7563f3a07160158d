"""Intervals and quantiles as arrays, tensors or DataFrames, whichever the rows came as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gdkl.inputs import FloatArray
from gdkl.inputs.checks import as_frame
from gdkl.numerics import OptionError
from gdkl.predictive import Predictive

if TYPE_CHECKING:
    import pandas as pd


class IntervalsMixin:
    """`predict_interval` and `predict_quantiles`, read off the predictive distribution."""

    if TYPE_CHECKING:

        def predict_distribution(self, X: Any) -> Predictive: ...  # noqa: D102

    def predict_interval(self, X: Any, coverage: float = 0.9) -> FloatArray | Tensor | pd.DataFrame:
        """The central interval that holds a new observation at each row with probability ``coverage``.

        Args:
            X: Rows ``(m, d)``.
            coverage: Strictly between 0 and 1.

        Returns:
            ``(m, 2)`` with the lower and the upper end, of several outputs ``(m, n_outputs, 2)``. Of a DataFrame (of
            any library) a pandas one with its index and the columns ``lower`` and ``upper``, under the name or number
            of the output where there are several.

        Example:
            >>> from gdkl import NNGPRegressor
            >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
            >>> low, high = NNGPRegressor().fit(X, np.sin(X[:, 0])).predict_interval(X, coverage=0.8).T
            >>> bool((low < high).all())
            True
        """
        _check_probabilities("coverage", [coverage] if np.ndim(coverage) == 0 else [])
        tails = [(1 - coverage) / 2, (1 + coverage) / 2]
        return self._columns(X, self.predict_distribution(X).quantile(tails), ["lower", "upper"])

    def predict_quantiles(
        self, X: Any, alpha: float | Sequence[float] = (0.05, 0.5, 0.95)
    ) -> FloatArray | Tensor | pd.DataFrame:
        """The values that a new observation at each row stays below with probabilities ``alpha``.

        Args:
            X: Rows ``(m, d)``.
            alpha: One probability or several, strictly between 0 and 1.

        Returns:
            ``(m, len(alpha))``, of several outputs ``(m, n_outputs, len(alpha))``. Of a DataFrame (of any library) a
            pandas one with its index and a column per probability, under the name or number of the output where there
            are several.

        Example:
            >>> from gdkl import NNGPRegressor
            >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
            >>> NNGPRegressor().fit(X, np.sin(X[:, 0])).predict_quantiles(X, alpha=[0.1, 0.9]).shape
            (40, 2)
        """
        levels = np.atleast_1d(np.asarray(alpha, dtype=object)).tolist()
        _check_probabilities("alpha", levels)
        return self._columns(X, self.predict_distribution(X).quantile([float(level) for level in levels]), levels)

    def _columns(self, X: Any, values: FloatArray, names: Sequence[Any]) -> FloatArray | Tensor | pd.DataFrame:
        """Values ``(len(names), m)`` or ``(len(names), m, outputs)`` with the names last, as the rows came."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        by_row, frame = np.moveaxis(values, 0, -1), as_frame(X)
        if not isinstance(frame, pd.DataFrame):
            return as_given(X, np.ascontiguousarray(by_row))
        columns = pd.Index(names)
        if by_row.ndim > 2:
            outputs = vars(self).get("target_names_", range(by_row.shape[1]))
            columns = pd.MultiIndex.from_product([outputs, names])
        return pd.DataFrame(by_row.reshape(len(by_row), -1), index=frame.index, columns=columns)


def as_given(X: Any, values: FloatArray) -> Any:
    """Values as a tensor on the device and in the precision of X, if X is one; else as they are.

    Example:
        >>> as_given(torch.zeros(1, 1), np.array([0.5]))
        tensor([0.5000])
    """
    if not isinstance(X, Tensor):
        return values
    dtype = X.dtype if X.dtype in (torch.float32, torch.float64) else torch.float64
    return torch.as_tensor(values, dtype=dtype, device=X.device)


def _check_probabilities(name: str, values: Sequence[Any]) -> None:
    numbers = [isinstance(value, (int, float, np.number)) and 0 < float(value) < 1 for value in values]
    if not numbers or not all(numbers):
        wanted = "one number" if name == "coverage" else "numbers"
        raise OptionError(f"{name} must be {wanted} strictly between 0 and 1, such as 0.9.")
