"""One root for our errors, and the built-in kinds that callers expect beside it."""

from __future__ import annotations

import inspect
import pickle

import pytest
import sklearn.exceptions

import gdkl
from gdkl import numerics
from gdkl.numerics import errors

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]
ERRORS = [value for value in CLASSES if not issubclass(value, Warning)]
WARNINGS = [value for value in CLASSES if issubclass(value, Warning)]


def test_the_root_is_public() -> None:
    assert gdkl.GdklError is numerics.GdklError


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_is_ours_and_exported(error: type[Exception]) -> None:
    assert issubclass(error, numerics.GdklError)
    assert getattr(numerics, error.__name__) is error
    assert error.__doc__


@pytest.mark.parametrize("warning", WARNINGS)
def test_every_warning_is_ours_and_exported(warning: type[Warning]) -> None:
    assert issubclass(warning, numerics.GdklWarning)
    assert issubclass(warning, UserWarning)
    assert getattr(numerics, warning.__name__) is warning


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (numerics.DataError, ValueError),
        (numerics.OptionError, ValueError),
        (numerics.ModelFileError, ValueError),
        (numerics.NotFittedError, sklearn.exceptions.NotFittedError),
        (numerics.NotFittedError, AttributeError),
        (numerics.MemoryLimitError, MemoryError),
        (numerics.NumericsError, ArithmeticError),
        (numerics.NotPositiveDefiniteError, numerics.NumericsError),
    ],
)
def test_errors_are_of_the_kind_that_callers_catch(error: type[Exception], kind: type[Exception]) -> None:
    assert issubclass(error, kind)


@pytest.mark.parametrize("error", [value for value in CLASSES if value is not numerics.NotPositiveDefiniteError])
def test_errors_pickle(error: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(error("the data have no rows")))
    assert type(again) is error
    assert again.args == ("the data have no rows",)
