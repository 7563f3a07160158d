"""Checks of the options of estimators: every refusal is one line that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gdkl.estimators.factories import check_base_kernel, network_builder
from gdkl.estimators.kinds import check_augment
from gdkl.inputs import FloatArray
from gdkl.numerics import DataError, OptionError
from gdkl.training import as_callbacks

if TYPE_CHECKING:
    from gdkl.estimators.base import EstimatorBase


def check_number(
    name: str, value: Any, *, low: float, strict: bool, integer: bool = False, boolean: bool = False
) -> None:
    """Refuse an option that is not a finite number above (or at) a bound; a boolean counts only where it may."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    fine = isinstance(value, kinds) and (boolean or not isinstance(value, bool)) and bool(np.isfinite(value))
    if not fine or value < low or (strict and value == low):
        what = "a whole number" if integer else "a number"
        bound = f"above {low:g}" if strict else f"of at least {low:g}"
        raise OptionError(f"{name}={value!r} is not allowed: use {what} {bound}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse an option that is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name}={value!r} is not allowed: use True or False.")


def check_student_options(estimator: EstimatorBase) -> None:
    """Refuse options of the student that are not allowed; those that an estimator does not offer have their default."""
    for name, low in (("n_iter", 1), ("n_inducing", 1)):
        if (value := getattr(estimator, name)) is not None:
            check_number(name, value, low=low, strict=False, integer=True)
    if estimator.beta is not None:
        check_number("beta", estimator.beta, low=0, strict=False)
    check_number("n_members", estimator.n_members, low=1, strict=False, integer=True)
    share = estimator.guide_share
    if share is not None and share != "auto" and (isinstance(share, str) or not 0 <= share <= 1):
        raise OptionError(f"guide_share={share!r} is not allowed: use a number from 0 to 1, or 'auto'.")
    network_builder(estimator.feature_net)
    check_base_kernel(estimator.base_kernel)
    check_augment(estimator.augment)
    # A Checkpoint is a callback too; `fit` hands it to the training loop.
    as_callbacks(estimator.callbacks)


def check_predictions(*values: FloatArray, first_row: int = 0) -> None:
    """Refuse predictions that are not finite: rows so far from those of ``fit`` that kernels overflow have none.

    Args:
        *values: Arrays ``(..., m)`` of the same rows.
        first_row: Number of the first row, where they are a part of a longer table.
    """
    finite = np.all([np.isfinite(part).all(axis=tuple(range(part.ndim - 1))) for part in values], axis=0)
    if not bool(finite.all()):
        bad = np.flatnonzero(~finite)
        raise DataError(
            f"{len(bad)} row{'s' if len(bad) > 1 else ''} of X (first: row {first_row + bad[0]}) cannot be predicted: "
            "kernels overflow so far from the rows of fit. Give values in the units of fit, or leave these rows out."
        )


def refuse_fit_options(options: dict[str, Any]) -> None:
    """Refuse what ``fit`` was passed beside X and y."""
    if "sample_weight" in options:
        raise OptionError(
            "sample_weight is not supported: weights are for regressors with exact inference. Fit without it."
        )
    if options:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(options))!r}")
