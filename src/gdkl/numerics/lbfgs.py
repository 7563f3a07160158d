"""L-BFGS with bounds, as SciPy has it, with one BLAS thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]


class Minimum(NamedTuple):
    """Where the search ended, and the value there."""

    x: Vector
    value: float


def minimise(
    objective: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    *,
    iterations: int,
    value_tolerance: float,
    gradient_tolerance: float,
    bounds: Vector | None = None,
    callback: Callable[[Vector], None] | None = None,
) -> Minimum:
    """Minimise a function that returns its value and gradient.

    SciPy's BLAS has threads of its own, which the search would start for matrices of a dozen rows: with other work on
    the cores that takes milliseconds per iteration, far more than most objectives here.

    Args:
        objective: From parameters to value and gradient.
        start: Where the search begins.
        iterations: The most.
        value_tolerance: The search ends where an iteration gains less than this part of the value.
        gradient_tolerance: The search ends where no component of the gradient is larger.
        bounds: Smallest and largest value of each parameter, ``(parameters, 2)``; None for none.
        callback: Called with the parameters after each iteration.

    Example:
        >>> found = minimise(lambda v: (float(v @ v), 2 * v), np.ones(2), iterations=9,
        ...                  value_tolerance=1e-9, gradient_tolerance=1e-9)
        >>> round(found.value, 6)
        0.0
    """
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    # With so few parameters a long memory is cheap, and saves iterations.
    options = {"maxiter": iterations, "maxcor": 30, "ftol": value_tolerance, "gtol": gradient_tolerance}
    with cast("AbstractContextManager[object]", _blas().limit(limits=1, user_api="blas")):
        result: Any = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
        )
    return Minimum(result.x, float(result.fun))


@cache
def _blas() -> Any:
    """The BLAS libraries of this process: to find them takes longer than to limit them."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return ThreadpoolController()
