"""The published splits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdkl.datasets import published_split
from gdkl.numerics import OptionError


@pytest.mark.parametrize("n", [10, 506, 768, 1030])
@pytest.mark.parametrize("seed", range(10))
def test_it_is_what_the_global_generator_draws(n: int, seed: int) -> None:
    kept = np.random.get_state()  # noqa: NPY002  (the published code uses the global generator)
    try:
        np.random.seed(seed)  # noqa: NPY002
        rows = np.arange(n)
        np.random.shuffle(rows)  # noqa: NPY002
    finally:
        np.random.set_state(kept)  # noqa: NPY002
    train, test = published_split(n, seed)
    np.testing.assert_array_equal(train, rows[: int(0.9 * n)])
    np.testing.assert_array_equal(test, rows[int(0.9 * n) :])


def test_the_global_generator_is_left_alone() -> None:
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.rand(3)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    published_split(100, 3)
    np.testing.assert_array_equal(np.random.rand(3), expected)  # noqa: NPY002


@given(st.integers(2, 500), st.integers(0, 2**32 - 1), st.floats(0.5, 0.95))
def test_both_parts_cover_all_rows_once(n: int, seed: int, train_fraction: float) -> None:
    train, test = published_split(n, seed, train_fraction)
    assert len(train) == int(train_fraction * n)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n))


@pytest.mark.parametrize(
    ("n", "fraction"), [(0, 0.9), (1, 0.9), (10, 0.0), (10, 1.0), (10, 0.05), (10, -1.0), (10, float("nan"))]
)
def test_an_empty_part_is_refused(n: int, fraction: float) -> None:
    with pytest.raises(OptionError, match="without rows"):
        published_split(n, 0, fraction)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(OptionError, match="seed must be between"):
        published_split(10, seed)
