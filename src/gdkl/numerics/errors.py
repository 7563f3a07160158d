"""One root for every error and warning that GDKL raises, so that a caller can catch us and nobody else."""

from __future__ import annotations

from collections.abc import Sequence


class GdklError(Exception):
    """Root of all errors that GDKL raises on purpose."""


class DataError(GdklError, ValueError):
    """The data given cannot be used; the message says what to change."""


class OptionError(GdklError, ValueError):
    """An option has a value that is not allowed; the message lists what is."""


class ModelFileError(GdklError, ValueError):
    """A model file is damaged, of another kind, or needs parts that were not passed."""


class MemoryLimitError(GdklError, MemoryError):
    """An allocation would not fit; raised before it is tried."""


class NumericsError(GdklError, ArithmeticError):
    """A computation left the range of floating-point numbers and no remedy helped."""


class NotPositiveDefiniteError(NumericsError):
    """A matrix that must be positive definite is not, at any jitter that was tried.

    Attributes:
        name: What the matrix is, in words.
        size: Its number of rows.
        smallest_eigenvalue: Of the worst matrix in the batch; NaN where the matrix is not finite.
        jitters: The absolute jitters tried, in order; none where the matrix is not finite.
        remedy: What the user can do.
    """

    def __init__(self, name: str, size: int, smallest_eigenvalue: float, jitters: Sequence[float], remedy: str):
        self.name = name
        self.size = size
        self.smallest_eigenvalue = smallest_eigenvalue
        self.jitters = tuple(jitters)
        self.remedy = remedy
        tried = ", ".join(f"{j:.1e}" for j in self.jitters) or "none"
        super().__init__(
            f"{name} ({size} x {size}) is not positive definite: smallest eigenvalue "
            f"{smallest_eigenvalue:.3e}, jitters tried {tried}. {remedy}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (
            type(self),
            (self.name, self.size, self.smallest_eigenvalue, self.jitters, self.remedy),
        )


class GdklWarning(UserWarning):
    """Root of all warnings that GDKL gives."""


class NumericsWarning(GdklWarning):
    """A result is usable, but a computation needed help; the message says which and how much."""


class DataWarning(GdklWarning):
    """Part of the data was ignored or changed; the message says which."""


class InterruptedFitWarning(GdklWarning):
    """Training was stopped early by the user; the model is usable."""
