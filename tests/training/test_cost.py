"""What exact training costs, by sizes alone."""

from __future__ import annotations

import warnings

import pytest
import torch

from gdkl.numerics import GdklWarning, MemoryLimitError
from gdkl.training import Problem, TrainingData, check_cost, cost, prefers_exact

CPU = torch.device("cpu")


def exact(rows, outputs, steps, memory=64 * 2**30, rows_per_step=None):
    return prefers_exact(Problem(rows, outputs, 1, True, rows_per_step), steps, memory)


def test_long_training_warns_before_it_starts():
    slow = Problem(4000, 1, 1, guided=True)
    with pytest.warns(GdklWarning, match=r"4000 rows for 7000 steps may take about \d+ minutes"):
        check_cost(slow, 7000, CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_cost(slow, 10, CPU)
    with pytest.raises(MemoryLimitError, match="exact training on 10000000 rows"):
        check_cost(Problem(10**7, 1, 1, guided=True), 1, CPU)


def test_the_estimate_grows_with_the_cube_of_the_rows():
    one, two = (Problem(n, 1, 1, guided=True).seconds(10) for n in (4000, 8000))
    assert two / one == pytest.approx(8, rel=2e-2)


def test_it_takes_no_time_to_tell_and_is_always_the_same(monkeypatch):
    monkeypatch.setattr("time.perf_counter", lambda: pytest.fail("timed"))
    assert len({exact(3000, 1, 2000) for _ in range(3)}) == 1


def test_up_to_2000_rows_are_exact_if_they_fit():
    assert exact(2000, 1, 10**6)
    assert not exact(2000, 1, 10, memory=2**26)
    assert not exact(2001, 1, 10**6)


def test_steps_of_some_of_the_rows_cost_what_these_cost():
    part, small = Problem(4000, 10, 1, True, 256), Problem(256, 10, 1, True)
    # All rows are factorised once, when training is over.
    assert part.seconds(500) - small.seconds(500) == pytest.approx(8 / 3 * 4000**3 * 10 / cost.NOMINAL_RATE["cpu"])
    assert part.bytes() == 5 * 10 * 4000**2 * 8
    assert Problem(4000, 10, 1, True).seconds(500) > 50 * part.seconds(500)
    assert not exact(4000, 10, 500)
    assert exact(4000, 10, 500, rows_per_step=256)
    # Not beyond what the factors of all rows take of memory, nor for ever.
    assert not exact(15_000, 10, 500, rows_per_step=256)
    assert not exact(4000, 10, 10**7, rows_per_step=256)
    # More rows per step than there are: all of them.
    assert Problem(4000, 1, 1, True, 9000).seconds(5) == Problem(4000, 1, 1, True).seconds(5)


def test_the_size_of_data():
    data = TrainingData(torch.zeros(2, 5, 1), torch.zeros(2, 3, 5))
    assert Problem.of(data, guided=False) == Problem(5, 3, 2, False, None, torch.float32, "cpu")
