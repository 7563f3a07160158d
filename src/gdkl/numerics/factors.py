"""Cholesky factors with an escalating jitter that is always reported, never silent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from gdkl.numerics.errors import NotPositiveDefiniteError, NumericsError, NumericsWarning
from gdkl.numerics.memory import is_out_of_memory

#: Jitters tried in order, relative to the mean diagonal of the matrix, by precision. Rounding moves eigenvalues by n ε
#: of the diagonal at most, times what a deep kernel adds to it: the last ones exceed that for 4000 rows in single
#: precision (entries of a matrix in double precision may have been computed in single). What needs more is no
#: covariance.
RELATIVE_JITTERS: dict[torch.dtype, tuple[float, ...]] = {
    torch.float64: (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    torch.float32: (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
}


#: Whether jitters are to be reported.
_REPORT: ContextVar[bool] = ContextVar("report jitters", default=True)


@contextmanager
def unreported_jitters() -> Generator[None]:
    """Give no warnings of jitters inside the context: of a search, only the result's matter.

    Filters of warnings are the process's own: two fits at the same time would leave those of one behind.

    Example:
        >>> with unreported_jitters():
        ...     factor = cholesky(torch.ones(2, 2), name="an example")
    """
    token = _REPORT.set(False)
    try:
        yield
    finally:
        _REPORT.reset(token)


def cholesky(matrix: Tensor, *, name: str) -> Tensor:
    """Return the lower Cholesky factor of each symmetric matrix in a batch ``(..., n, n)``; gradients flow.

    A matrix that is not numerically positive definite gets the smallest jitter of an escalating list that makes it so,
    and a `NumericsWarning` names the matrix and the largest jitter given. Each matrix of a batch is treated on its own:
    those that need no jitter are left exactly as they are. What fails in single precision is factorised in double:
    rounding within the factorisation is no reason for a jitter.

    Raises:
        NotPositiveDefiniteError: If the largest jitter does not help or the matrix is not finite.

    Example:
        >>> cholesky(torch.eye(2, dtype=torch.float64) * 4, name="an example")
        tensor([[2., 0.],
                [0., 2.]], dtype=torch.float64)
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    # Zero times a diagonal that is not finite is not zero.
    if float((info + 0 * factor.detach().diagonal(dim1=-2, dim2=-1).sum(dim=-1)).abs_().sum()) == 0:
        return factor

    _, failed = _try_factor(matrix)
    size = matrix.shape[-1]
    scale = matrix.detach().diagonal(dim1=-2, dim2=-1).abs().mean(dim=-1)
    jitter = torch.zeros_like(scale)
    in_double = failed if matrix.dtype != torch.float64 else torch.zeros_like(failed)
    tried: list[float] = []
    smallest = math.nan
    if bool(torch.isfinite(matrix).all()):
        for relative in RELATIVE_JITTERS[matrix.dtype]:
            # Only what still fails goes a step up: a neighbour in the batch must not change a result.
            jitter = torch.where(failed, relative * scale, jitter)
            tried.append(float(jitter.max()))
            shifted = matrix + torch.diag_embed(jitter[..., None].expand(matrix.shape[:-1]))
            factor, failed = _try_in_two_precisions(shifted, in_double)
            if not bool(failed.any()):
                if _REPORT.get():
                    warnings.warn(
                        f"{name} ({size} x {size}) was not positive definite in {str(matrix.dtype)[6:]}; "
                        f"added a jitter of {tried[-1]:.1e} to its diagonal.",
                        NumericsWarning,
                        stacklevel=2,
                    )
                return factor
        smallest = float(torch.linalg.eigvalsh(matrix.detach().to("cpu", torch.float64)).min())
    raise NotPositiveDefiniteError(name, size, smallest, tried)


def eigenvectors(matrix: Tensor, *, name: str) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``(..., n)`` and eigenvectors of symmetric matrices ``(..., n, n)``; no gradients.

    Raises:
        NumericsError: If they are not found, in double precision on the CPU either.

    Example:
        >>> values, Q = eigenvectors(torch.eye(2) * 4, name="an example")
        >>> values
        tensor([4., 4.])
    """
    try:
        return torch.linalg.eigh(matrix)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
    # Many equal eigenvalues stop the iterations of some libraries, in single precision and on a GPU above all.
    try:
        values, Q = torch.linalg.eigh(matrix.to("cpu", torch.float64))
    except RuntimeError as error:
        raise NumericsError(
            f"the eigenvalues of {name} ({matrix.shape[-1]} x {matrix.shape[-1]}) cannot be computed: check the "
            "inputs and the kernel for values that are not finite."
        ) from error
    return values.to(matrix), Q.to(matrix)


def _try_in_two_precisions(matrix: Tensor, in_double: Tensor) -> tuple[Tensor, Tensor]:
    """`_try_factor` of a batch of which some are factorised in double precision."""
    if not bool(in_double.any()):
        return _try_factor(matrix)
    factor, failed = torch.zeros_like(matrix), torch.zeros_like(in_double)
    for chosen, some in ((~in_double, matrix[~in_double]), (in_double, matrix[in_double].double())):
        # Apart, so that no gradient of one flows through the other.
        found, failed[chosen] = _try_factor(some)
        factor[chosen] = found.to(matrix.dtype)
    return factor, failed


def _try_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Factors, and which of them are no good; an infinite diagonal passes LAPACK unnoticed."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    finite = torch.isfinite(factor.detach().diagonal(dim1=-2, dim2=-1)).all(dim=-1)
    return factor, (info != 0) | ~finite
