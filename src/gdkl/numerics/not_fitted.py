"""The error of a model that is not fitted: scikit-learn's too, which takes a while to import."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

from gdkl.numerics.errors import GdklError


class NotFittedError(GdklError, _SklearnNotFittedError):
    """A model was asked for something that it has only after ``fit``."""
