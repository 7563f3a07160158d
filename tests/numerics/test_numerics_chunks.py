"""Chunks: they cover all rows once, in order, and the joined result is that of one call."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gdkl.numerics import DEFAULT_BUDGET, MemoryLimitError, OptionError, chunk_slices, map_rows, rows_per_chunk


@given(st.integers(0, 300), st.integers(1, 350))
def test_slices_cover_all_rows_once_and_in_order(n_rows: int, chunk_size: int) -> None:
    slices = list(chunk_slices(n_rows, chunk_size))
    rows = list(range(n_rows))
    assert [row for part in slices for row in rows[part]] == rows
    sizes = [part.stop - part.start for part in slices]
    assert all(size == chunk_size for size in sizes[:-1])
    assert all(1 <= size <= chunk_size for size in sizes)
    assert len(sizes) == -(-n_rows // chunk_size)


@pytest.mark.parametrize("chunk_size", [0, -3])
def test_a_wrong_chunk_size_is_refused_at_once(chunk_size: int) -> None:
    with pytest.raises(OptionError, match=f"chunk_size must be at least 1; got {chunk_size}"):
        chunk_slices(10, chunk_size)


@given(st.integers(1, 10**9), st.integers(1, 10**12))
def test_as_many_rows_as_fit(bytes_per_row: int, budget: int) -> None:
    rows = rows_per_chunk(bytes_per_row, budget)
    assert rows >= 1
    assert rows == 1 or rows * bytes_per_row <= budget
    assert (rows + 1) * bytes_per_row > budget


def test_the_default_budget() -> None:
    assert rows_per_chunk(2**20) == DEFAULT_BUDGET // 2**20


@pytest.mark.parametrize(("bytes_per_row", "budget"), [(0, 10), (10, 0), (-1, 10)])
def test_budgets_without_sense_are_refused(bytes_per_row: int, budget: int) -> None:
    with pytest.raises(OptionError, match=f"got {bytes_per_row} and {budget}"):
        rows_per_chunk(bytes_per_row, budget)


@given(st.integers(0, 40), st.integers(1, 50))
def test_the_joined_result_is_that_of_one_call(n: int, chunk_size: int) -> None:
    rows = torch.arange(n * 3, dtype=torch.float64).reshape(n, 3)
    calls: list[int] = []

    def function(part: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(part.shape[0])
        # Rows in the second dimension, as a batch of posteriors has them.
        both = torch.stack([part.sum(dim=-1), part.prod(dim=-1)])
        return both, both[..., None] * torch.ones(4, dtype=torch.float64)

    got = map_rows(function, rows, chunk_size, row_dim=1)
    assert max(calls) <= chunk_size
    assert sum(calls) == n
    for piece, whole in zip(got, function(rows), strict=True):
        assert torch.equal(piece, whole)


def test_no_rows_give_empty_results_of_the_right_shape() -> None:
    (got,) = map_rows(lambda part: (part @ torch.ones(3, 2),), torch.zeros(0, 3), 5, row_dim=0)
    assert got.shape == (0, 2)


def test_gradients_reach_every_row() -> None:
    rows = torch.arange(7.0, requires_grad=True)
    (squares,) = map_rows(lambda part: (part**2,), rows, 3, row_dim=0)
    squares.sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, 2 * torch.arange(7.0))


def test_a_negative_dimension_counts_from_the_end() -> None:
    rows = torch.arange(6.0)
    (got,) = map_rows(lambda part: (part.expand(2, 3, -1),), rows, 4, row_dim=-1)
    assert torch.equal(got, rows.expand(2, 3, 6))


def greedy(most: int, calls: list[int]):
    """A function of rows that asks for more memory than any machine has where it gets more than so many."""

    def function(part: Tensor) -> tuple[Tensor]:
        calls.append(len(part))
        if len(part) > most:
            torch.empty(2**58)
        return (part * 2,)

    return function


@pytest.mark.parametrize(("most", "expected"), [(9, [20, 10, 5, 5, 5, 5]), (1, [20, 10, 5, 2] + [1] * 20)])
def test_chunks_that_do_not_fit_are_halved(most: int, expected: list[int]) -> None:
    rows, calls = torch.arange(20.0), list[int]()
    (doubled,) = map_rows(greedy(most, calls), rows, 100, row_dim=0)
    assert torch.equal(doubled, 2 * rows)
    assert calls == expected


def test_a_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(MemoryLimitError, match="a single row of a prediction needs more memory than there is on cpu"):
        map_rows(greedy(0, []), torch.arange(20.0), 100, row_dim=0)


def test_other_errors_are_not_taken_for_memory() -> None:
    def function(part: Tensor) -> tuple[Tensor]:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        map_rows(function, torch.arange(20.0), 100, row_dim=0)
