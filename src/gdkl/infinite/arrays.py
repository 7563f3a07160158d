"""The border between users and the recursion: arrays and tensors in, the same kind out; parameters, checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gdkl.numerics import DataError, NumericsWarning, OptionError

#: What the kernels take and give: a tensor, or anything that NumPy reads as an array of numbers.
ArrayLike: TypeAlias = Tensor | npt.NDArray[Any]

#: Whether values are looked at, on their way in and on their way out.
_looking: ContextVar[bool] = ContextVar("looking", default=True)


@contextmanager
def unchecked() -> Generator[None]:
    """Take it that inputs and covariances are finite, without a look at them, for which Python would wait for a GPU.

    A training loop that asks for the kernel of every batch looks at its objective now and then instead. Counts for
    the thread, or asyncio task, that enters it, and not for threads that are started within.

    Example:
        >>> import gdkl.infinite as inf
        >>> with inf.unchecked():
        ...     inf.mlp(hidden_layers=1).kernel(torch.tensor([[float("nan")]]))
        tensor([[nan]])
    """
    before = _looking.set(False)
    try:
        yield
    finally:
        _looking.reset(before)


@dataclass(frozen=True)
class Inputs:
    """One or two sets of inputs, tensors of one precision and device; ``x2`` is None where the first meets itself."""

    x1: Tensor
    x2: Tensor | None
    as_numpy: bool

    @property
    def needs_grad(self) -> bool:
        """Whether a gradient with respect to the inputs is asked for."""
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (self.x1, self.x2))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.x1.shape[0], (self.x1 if self.x2 is None else self.x2).shape[0]

    def give(self, result: Tensor) -> Any:
        """The result in the caller's own kind."""
        return result.detach().cpu().numpy() if self.as_numpy else result


def read_inputs(x1: ArrayLike, x2: ArrayLike | None = None, *, name: str = "x1") -> Inputs:
    """Checked inputs as tensors: float32 and float64 stay, whole numbers become float64; ``name`` is for errors."""
    as_numpy = not isinstance(x1, Tensor) and not isinstance(x2, Tensor)
    first = _tensor(x1, name)
    second = None if x2 is None else _tensor(x2, "x2")
    if second is not None:
        if first.shape[1:] != second.shape[1:]:
            raise DataError(
                f"x1 and x2 must have inputs of one shape; got {tuple(first.shape[1:])} and {tuple(second.shape[1:])}."
            )
        if first.device != second.device:
            raise DataError(f"x1 and x2 must be on one device; got {first.device} and {second.device}: move one.")
        dtype = torch.promote_types(first.dtype, second.dtype)
        first, second = first.to(dtype), second.to(dtype)
    return Inputs(first, second, as_numpy)


def _tensor(x: ArrayLike, name: str) -> Tensor:
    """One checked set of inputs."""
    if not isinstance(x, Tensor):
        try:
            array = np.asarray(x)
        except (ValueError, TypeError) as error:
            raise DataError(f"{name} must be an array of numbers with rows of one length: {error}") from error
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name} must hold real numbers; got an array of {array.dtype}.")
        # Native byte order, and none of the precisions that torch does not have.
        kept = array.dtype.kind == "f" and array.dtype.itemsize <= 8
        dtype = array.dtype.newbyteorder("=") if kept else np.dtype(np.float64)
        x = torch.from_numpy(np.ascontiguousarray(array.astype(dtype, copy=False)))
    if x.is_complex():
        raise DataError(f"{name} must hold real numbers; got {x.dtype}.")
    if x.dtype not in (torch.float32, torch.float64):
        # Half precision holds three digits: its values are kept, its arithmetic is not.
        x = x.to(torch.float32 if x.is_floating_point() else torch.float64)
    if x.ndim not in (2, 4):
        raise DataError(f"{name} must have shape (n, features) or (n, channels, height, width); got {tuple(x.shape)}.")
    if 0 in x.shape[1:]:
        raise DataError(f"{name} has no features: its shape is {tuple(x.shape)}.")
    # The sum shows a NaN or an infinity faster than a look at each number, but it may overflow.
    if _looking.get() and not math.isfinite(float(x.detach().sum())):
        finite = torch.isfinite(x.detach()).flatten(1).all(dim=1)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0, 0])
            raise DataError(f"{name} must be finite; row {row} has a NaN or an infinity: remove or impute such rows.")
    return x


def scale_columns(x: Tensor, variances: Sequence[float]) -> Tensor:
    """Columns times the roots of variances: a first layer with weights of these variances, put before the network."""
    if x.shape[1:] != (len(variances),):
        shape = ("n", *x.shape[1:])
        raise DataError(f"weight_var has one variance for each of {len(variances)} columns; the inputs are {shape}.")
    return x * torch.tensor(variances, dtype=torch.float64).sqrt().to(x)


def warn_of_overflow(matrix: Any, inputs: Inputs) -> None:
    """Warn of a kernel matrix that is not finite, from the few entries that overflow first."""
    if 0 in matrix.shape or not _looking.get():
        return
    if inputs.x2 is None:
        warn_unless_finite(matrix.diagonal())
        return
    # Kernels grow with the inputs: what the largest of either set meets is not finite first.
    row, column = (int(x.detach().flatten(1).abs().amax(1).argmax()) for x in (inputs.x1, inputs.x2))
    warn_unless_finite(matrix[row], matrix[:, column])


def warn_unless_finite(*entries: Any) -> None:
    """Warn once if an entry is not finite."""
    if not _looking.get():
        return
    tensors = [entry if isinstance(entry, Tensor) else torch.tensor(np.array(entry)) for entry in entries]
    if all(bool(torch.isfinite(entry).all()) for entry in tensors):
        return
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    wider = "float64, " if dtype == "float32" else ""
    warnings.warn(
        f"the kernel overflowed in {dtype}: use {wider}smaller variances or smaller inputs.",
        NumericsWarning,
        stacklevel=4,
    )


def finite_number(value: float, name: str, *, least: float = -math.inf) -> float:
    """A parameter as a float, refused if it is not finite or too small."""
    try:
        if isinstance(value, str | bytes | bool | np.bool_):
            raise TypeError("not a number, though float() would take it")
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OptionError(f"{name} must be a number; got {value!r}.") from error
    if not math.isfinite(number) or number < least:
        bound = "finite" if least == -math.inf else f"finite and at least {least:g}"
        raise OptionError(f"{name} must be {bound}; got {value!r}.")
    return number


def whole_number(value: Any, name: str, *, least: int) -> int:
    """A parameter as an int, from any whole number that is not too small."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value != int(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)
