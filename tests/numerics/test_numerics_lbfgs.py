"""Minimising: the minimum is found within its bounds, with one BLAS thread that comes back afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gdkl.numerics import Vector, minimise

TIGHT = {"iterations": 200, "value_tolerance": 1e-14, "gradient_tolerance": 1e-10}


def rosenbrock(v: Vector) -> tuple[float, Vector]:
    x, y = v
    return float((1 - x) ** 2 + 100 * (y - x * x) ** 2), np.array(
        [-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)]
    )


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_the_minimum_is_found() -> None:
    found = minimise(rosenbrock, np.array([-1.2, 1.0]), **TIGHT)
    assert found.x == pytest.approx([1, 1], abs=1e-5)
    assert found.value == pytest.approx(0, abs=1e-10)


def test_bounds_hold() -> None:
    found = minimise(rosenbrock, np.array([-1.2, 1.0]), bounds=np.array([[-2, 0.5], [-2, 2]]), **TIGHT)
    assert found.x == pytest.approx([0.5, 0.25], abs=1e-5)


def test_blas_has_one_thread_within_and_its_own_number_afterwards() -> None:
    seen: list[int] = []

    def objective(v: Vector) -> tuple[float, Vector]:
        seen.extend(blas_threads())
        return rosenbrock(v)

    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        minimise(objective, np.array([-1.2, 1.0]), iterations=3, value_tolerance=0, gradient_tolerance=0)
        assert blas_threads() == before
    assert set(seen) == {1}
