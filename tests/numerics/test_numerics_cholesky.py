"""Cholesky factors: the smallest jitter that helps, only where it is needed, and always reported."""

from __future__ import annotations

import math
import pickle
import re
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gdkl.numerics import NotPositiveDefiniteError, NumericsError, NumericsWarning, cholesky, eigenvectors
from gdkl.numerics.factors import RELATIVE_JITTERS

DTYPES = [torch.float32, torch.float64]
#: Largest deviation of L Lᵀ from K, relative to K's largest entry.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}


def spectrum(*eigenvalues: float, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """A symmetric matrix with given eigenvalues and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(eigenvalues)
    basis, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    matrix = (basis * torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.T
    return ((matrix + matrix.T) / 2).to(dtype)


def needing(relative: float, *, size: int = 6, scale: float = 1.0, seed: int = 0) -> Tensor:
    """A float64 matrix of a given mean diagonal that is out by a given part of it."""
    rest = (1.0 + relative / size) * size / (size - 1)
    return scale * spectrum(-relative, *[rest] * (size - 1), seed=seed)


def reported(record: pytest.WarningsRecorder) -> float:
    """The jitter that the only warning names."""
    (warning,) = record
    match = re.search(r"jitter of (\S+) to", str(warning.message))
    assert match is not None
    return float(match[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_a_good_matrix_is_factored_as_it_is(dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(*batch, 8, 8, generator=generator, dtype=dtype)
    matrix = root @ root.mT + torch.eye(8, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factor = cholesky(matrix, name="K")
    assert torch.equal(factor, torch.linalg.cholesky(matrix))
    assert factor.dtype == dtype
    error = (factor @ factor.mT - matrix).abs().max() / matrix.abs().max()
    assert float(error) < TOLERANCE[dtype]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e10])
@pytest.mark.parametrize("step", range(4))
def test_the_jitter_is_the_smallest_that_helps_and_is_reported(step: int, scale: float) -> None:
    steps = RELATIVE_JITTERS[torch.float64]
    # Out by a third of this step: the step before, a hundred times smaller, cannot do.
    out = steps[step] / 3 if step else 3e-14
    matrix = needing(out, scale=scale)
    with pytest.warns(NumericsWarning) as record:
        factor = cholesky(matrix, name="the kernel matrix")
    expected = steps[step] * scale
    assert reported(record) == pytest.approx(expected, rel=0.06)
    added = (factor @ factor.mT - matrix).diagonal()
    torch.testing.assert_close(added, torch.full_like(added, expected), rtol=0.05, atol=3e-15 * scale)
    text = str(record[0].message)
    assert text.startswith("the kernel matrix (6 x 6)")
    assert "float64" in text


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicate_rows_are_helped(dtype: torch.dtype) -> None:
    x = torch.linspace(0, 1, 20, dtype=dtype).repeat(2)
    kernel = torch.exp(-(x[:, None] - x[None, :]).square())
    with pytest.warns(NumericsWarning, match="jitter"):
        factor = cholesky(kernel, name="K")
    assert float((factor @ factor.mT - kernel).abs().max()) < {torch.float32: 2e-4, torch.float64: 2e-6}[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_to_single_precision_is_always_helped(dtype: torch.dtype) -> None:
    x = torch.linspace(0, 1, 1500, dtype=torch.float64)
    rounded = torch.exp(-(x[:, None] - x[None, :]).square()).float()
    # As large as rounding can be.
    rounded = rounded - 1500 * torch.finfo(torch.float32).eps * torch.eye(1500)
    with pytest.warns(NumericsWarning, match="jitter"):
        cholesky(rounded.to(dtype), name="K")


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(NumericsWarning) as record:
        cholesky(needing(1e-11), name="K")
    assert record[0].filename == __file__


def test_good_members_of_a_batch_are_bit_for_bit_unchanged() -> None:
    good = [spectrum(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, seed=seed) for seed in range(3)]
    batch = torch.stack([good[0], needing(1e-9), good[1], needing(1e-7), good[2]])
    with pytest.warns(NumericsWarning):
        factor = cholesky(batch, name="K")
    for index, matrix in zip((0, 2, 4), good, strict=True):
        assert torch.equal(factor[index], torch.linalg.cholesky(matrix))


def test_each_member_gets_its_own_smallest_jitter() -> None:
    members = [needing(out, seed=seed) for seed, out in enumerate((3e-14, 3e-11, 3e-9, 3e-7))]
    with pytest.warns(NumericsWarning) as record:
        together = cholesky(torch.stack(members).reshape(2, 2, 6, 6), name="K").reshape(4, 6, 6)
    for matrix, factor in zip(members, together, strict=True):
        with pytest.warns(NumericsWarning):
            alone = cholesky(matrix, name="K")
        assert torch.equal(factor, alone)
    assert reported(record) == pytest.approx(1e-6, rel=0.06)


def test_the_error_says_what_where_and_how() -> None:
    matrix = spectrum(-0.5, 1.0, 2.0, 3.5)
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky(matrix, name="the guide's Gram matrix")
    error = caught.value
    assert isinstance(error, NumericsError)
    assert (error.name, error.size) == ("the guide's Gram matrix", 4)
    assert error.smallest_eigenvalue == pytest.approx(-0.5)
    mean_diagonal = float(matrix.diagonal().mean())
    assert error.jitters == pytest.approx([r * mean_diagonal for r in RELATIVE_JITTERS[torch.float64]])
    message = str(error)
    assert "\n" not in message
    for part in ("the guide's Gram matrix (4 x 4)", "-5.000e-01", "1.5e-06", "raise the noise"):
        assert part in message


def test_the_error_is_of_the_worst_member() -> None:
    batch = torch.stack([torch.eye(3, dtype=torch.float64), spectrum(-2.0, 1.0, 4.0), spectrum(-1.0, 1.0, 4.0)])
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky(batch, name="K")
    assert caught.value.smallest_eigenvalue == pytest.approx(-2.0)


def test_a_matrix_of_zeros_is_an_error() -> None:
    with pytest.raises(NotPositiveDefiniteError) as caught:
        cholesky(torch.zeros(3, 3, dtype=torch.float64), name="K")
    assert caught.value.smallest_eigenvalue == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (2, 1)])
@pytest.mark.parametrize("batch", [False, True])
def test_what_is_not_finite_is_an_error_without_jitter(
    dtype: torch.dtype, bad: float, place: tuple[int, int], batch: bool
) -> None:
    matrix = torch.eye(3, dtype=dtype) * 2
    matrix[place] = matrix[place[::-1]] = bad
    if batch:
        matrix = torch.stack([torch.eye(3, dtype=dtype), matrix])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotPositiveDefiniteError, match="jitters tried none") as caught:
            cholesky(matrix, name="K")
    assert math.isnan(caught.value.smallest_eigenvalue)
    assert caught.value.jitters == ()
    assert "not finite" in str(caught.value)


def test_the_error_pickles_whole() -> None:
    error = NotPositiveDefiniteError("K", 7, -1.5, [1e-8, 1e-6])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is NotPositiveDefiniteError
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.jitters == (1e-8, 1e-6)


def symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2


def test_gradients_of_a_good_factor() -> None:
    matrix = spectrum(1.0, 2.0, 3.0, 4.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: cholesky(symmetric(m), name="K"), (matrix,))


def test_gradients_flow_through_the_jittered_factor() -> None:
    jitter = RELATIVE_JITTERS[torch.float64][3]
    matrix = needing(3e-7, size=4)
    weights = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    leaf = matrix.clone().requires_grad_()
    with pytest.warns(NumericsWarning):
        (cholesky(symmetric(leaf), name="K") * weights).sum().backward()

    reference = matrix.clone().requires_grad_()
    shifted = symmetric(reference) + jitter * matrix.diagonal().mean() * torch.eye(4, dtype=torch.float64)
    (torch.linalg.cholesky(shifted) * weights).sum().backward()

    assert leaf.grad is not None
    assert reference.grad is not None
    assert bool(torch.isfinite(leaf.grad).all())
    assert float(leaf.grad.abs().max()) > 0
    # The last pivot is the difference of nearly equal numbers: six digits of it are left.
    torch.testing.assert_close(leaf.grad, reference.grad, rtol=1e-6, atol=1e-6 * float(reference.grad.abs().max()))


def test_gradients_of_good_neighbours_stay_clean() -> None:
    good = spectrum(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    batch = torch.stack([good, needing(1e-9)]).requires_grad_()
    with pytest.warns(NumericsWarning):
        factor = cholesky(batch, name="K")
    factor[0].sum().backward()
    alone = good.clone().requires_grad_()
    torch.linalg.cholesky(alone).sum().backward()
    assert batch.grad is not None
    assert alone.grad is not None
    torch.testing.assert_close(batch.grad[0], alone.grad, rtol=1e-13, atol=1e-13)
    assert float(batch.grad[1].abs().max()) == 0.0


@given(st.integers(1, 7), st.integers(0, 10**6), st.floats(-9, 9))
def test_factors_rebuild_their_matrix(n: int, seed: int, exponent: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix = 10.0**exponent * (root @ root.mT + 0.1 * torch.eye(n, dtype=torch.float64))
    factor = cholesky(matrix, name="K")
    assert torch.equal(factor, factor.tril())
    assert float((factor @ factor.mT - matrix).abs().max()) <= 1e-13 * float(matrix.abs().max())


def test_rounding_within_a_factorisation_in_single_precision_is_no_reason_for_a_jitter() -> None:
    """Positive definite by 4e-7 of the diagonal; in single precision alone it would take a jitter of 1e-5."""
    x = torch.linspace(0, 1, 200, dtype=torch.float64)
    matrix = torch.exp(-3 * (x[:, None] - x[None, :]).square()) + 1e-6 * torch.eye(200, dtype=torch.float64)
    with pytest.warns(NumericsWarning, match="float32") as record:
        factor = cholesky(matrix.float(), name="K")
    assert reported(record) == pytest.approx(1e-7, rel=0.06)
    assert factor.dtype == torch.float32
    assert float((factor.double() @ factor.double().mT - matrix).abs().max()) < 1e-6


def test_good_members_in_single_precision_are_unchanged_beside_one_in_double() -> None:
    good = spectrum(1.0, 2.0, 3.0, 4.0, 5.0, 6.0).float()
    batch = torch.stack([good, needing(1e-3).float(), good]).requires_grad_()
    with pytest.warns(NumericsWarning, match="float32"):
        factor = cholesky(batch, name="K")
    for index in (0, 2):
        assert torch.equal(factor[index], torch.linalg.cholesky(good))
    factor.sum().backward()
    assert batch.grad is not None
    assert bool(torch.isfinite(batch.grad).all())
    alone = good.clone().requires_grad_()
    torch.linalg.cholesky(alone).sum().backward()
    assert torch.equal(batch.grad[0], alone.grad)


def test_eigenvalues_that_cannot_be_found_are_an_error_of_one_line() -> None:
    matrix = spectrum(1.0, 2.0, 3.0)
    values, Q = eigenvectors(matrix, name="K")
    torch.testing.assert_close(values, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    torch.testing.assert_close((Q * values) @ Q.mT, matrix)
    with pytest.raises(NumericsError, match=r"eigenvalues of the guide's Gram \(3 x 3\) cannot be computed") as caught:
        eigenvectors(matrix * math.nan, name="the guide's Gram")
    assert "\n" not in str(caught.value)
