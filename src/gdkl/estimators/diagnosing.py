"""The method ``diagnose`` of every estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdkl.estimators.diagnostics import Diagnosis


class Diagnosing:
    """An estimator that can be asked what speaks against it."""

    def diagnose(self, X: Any, y: Any, *, train: tuple[Any, Any] | None = None) -> Diagnosis:
        """Look for what speaks against the model on held-out rows; print the answer.

        Checked are skill, calibration, overfitting, features, guide and student, shift, outliers, and whether there are
        rows enough. A check alarms on a few healthy models in a thousand.

        Args:
            X: Rows that ``fit`` has not seen.
            y: Their targets or labels.
            train: Rows and targets of ``fit``, where the model does not hold them: with inducing points, a network
                with a softmax head, or `DKLRegressor`, whose rows are hidden behind its features.

        Returns:
            Findings with severity, figure and remedy; ``to_frame()`` gives a DataFrame.

        Example:
            >>> import numpy as np
            >>> from gdkl import NNGPRegressor
            >>> rng = np.random.default_rng(0)
            >>> X = rng.uniform(-2, 2, (120, 1))
            >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120)
            >>> print(NNGPRegressor().fit(X[:80], y[:80]).diagnose(X[80:], y[80:]).verdict)
            Nothing speaks against this model on 40 held-out rows.
        """
        from gdkl.estimators.diagnostics import diagnose  # noqa: PLC0415  (it needs the estimators)

        return diagnose(self, X, y, train)
