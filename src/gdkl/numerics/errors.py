"""One root for every error and warning that GDKL raises, so that a caller can catch us and nobody else."""

from __future__ import annotations

from collections.abc import Sequence


class GdklError(Exception):
    """Root of all errors that GDKL raises on purpose."""


class DataError(GdklError, ValueError):
    """The data given cannot be used; the message says what to change."""


class OptionError(GdklError, ValueError):
    """An option has a value that is not allowed; the message lists what is."""


class MissingPackageError(GdklError, ImportError):
    """An optional package is not installed; the message names the extra that installs it."""


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
    """

    def __init__(self, name: str, size: int, smallest_eigenvalue: float, jitters: Sequence[float]):
        self.name, self.size, self.smallest_eigenvalue, self.jitters = name, size, smallest_eigenvalue, tuple(jitters)
        # Arguments, not a message: this is what pickle calls the class with.
        super().__init__(name, size, smallest_eigenvalue, self.jitters)

    def __str__(self) -> str:
        tried = ", ".join(f"{j:.1e}" for j in self.jitters) or "none"
        return (
            f"{self.name} ({self.size} x {self.size}) is not positive definite: smallest eigenvalue "
            f"{self.smallest_eigenvalue:.3e}, jitters tried {tried}. Remove duplicate rows, raise the noise, or "
            "compute in float64; if the matrix is not finite, check the inputs and the feature network for infinities."
        )


class GdklWarning(UserWarning):
    """Root of all warnings that GDKL gives."""


class NumericsWarning(GdklWarning):
    """A result is usable, but a computation needed help; the message says which and how much."""


class DataWarning(GdklWarning):
    """Part of the data was ignored or changed; the message says which."""


class InterruptedFitWarning(GdklWarning):
    """Training was stopped early by the user; the model is usable."""
