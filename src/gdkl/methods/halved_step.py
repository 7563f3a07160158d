"""A guided step of one network with one output on a CPU, in two halves of equal work that meet four times, or whole.

The same numbers as `gdkl.gp` and `gdkl.nets` give one after the other, symbols as in `gdkl.gp.split_posterior`. At some
hundred rows torch's threads wait for each other more than they compute. Here each of two threads has its own rows of
the network, its own held-out rows of the posterior, and long operations; one thread takes the halves in turns, with the
same result to the last bit. Members that train together have a thread each instead, and the step is taken whole: with
fewer operations they wait less for the interpreter. Most products and all short operations are NumPy's: its calls cost
a third of torch's, and a short one does not make the other thread wait for the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from gdkl.gp import LOWEST_EXPONENT, RELATIVE_VARIANCE_FLOOR
from gdkl.numerics import cholesky_of_array, side_by_side

Array = NDArray[Any]

#: Rows of a block in a product of which only the lower half is wanted.
_BLOCK = 64

#: The very overload: to choose among several takes longer than a short operation.
_THRESHOLD_BACKWARD = cast(Any, torch.ops.aten).threshold_backward.grad_input

_LOG2_E = math.log2(math.e)
_LOG_2PI = math.log(2 * math.pi)


class HalvedProblem(NamedTuple):
    """One step of one member.

    Attributes:
        rows: Observed, then held-out, rows, ``(n, d)``.
        targets: In the same order, ``(n,)``.
        p_mean: The guide's means on the held-out rows, ``(n2,)``.
        p_variance: Its variances.
        beta: Weight of the KL term.
        lengthscale: Of the student's kernel.
        scale: Its output scale.
        noise: The student's noise variance.
        network: Weight and bias of each layer in turn.
        name: What K₁₁ + σ²I is, for numerical errors.
    """

    rows: Array
    targets: Array
    p_mean: Array
    p_variance: Array
    beta: float
    lengthscale: float
    scale: float
    noise: float
    network: Sequence[Array]
    name: str


class HalvedGradients(NamedTuple):
    """ELL and KL, and the gradients of ELL + β·KL."""

    ell: float
    kl: float
    lengthscale: float
    scale: float
    noise: float
    network: list[Array]


class _Share(NamedTuple):
    """What the held-out rows of one half add up to, and the gradient by their own features.

    Attributes:
        error: Σ (y − mean)² + variance.
        kl: Σ of twice the KL divergences and one.
        of_variance: Σ of gradients by variances.
        along: Σ of gradients times features, for the lengthscale.
        G11: Gradient by K₁₁, but for its part of rank one: blocks on the diagonal at twice their weight, none above.
        Wg: W times the gradient by the means.
        to_first: The kernel's pull on the observed rows, ``(p + 2, n1)``.
    """

    error: float
    kl: float
    of_variance: float
    along: float
    G11: Array
    Wg: Array
    to_first: Array


def halved_step(problem: HalvedProblem, *, alone: bool = False) -> HalvedGradients:
    """Values and gradients of one guided step, by two threads inside `shared_by_threads`.

    Args:
        problem: What the step is about.
        alone: Whether the threads have other work, such as the steps of other members: the step is then taken whole.

    Raises:
        NotPositiveDefiniteError: If K₁₁ + σ²I has no Cholesky factor. Other numbers out of range become infinite or no
            number at all, without a word, as torch's do.
    """
    step = _HalvedStep(problem)
    if alone:
        step.undivided()
    else:
        side_by_side(step.observed_side(), step.held_out_side())
    return step.gradients()


class _HalvedStep:
    """The two halves' common ground: what one writes before they meet, the other reads after."""

    def __init__(self, problem: HalvedProblem):
        self.problem = problem
        n, self.n1 = len(problem.rows), len(problem.targets) - len(problem.p_mean)
        self.cut = (n - self.n1) // 2
        self.outputs = [np.empty((n, len(bias)), problem.rows.dtype) for bias in problem.network[1::2]]
        dtype = problem.targets.dtype
        self.of_features = np.empty((n, self.outputs[-1].shape[1]), dtype)
        self.shares: dict[int, _Share] = {}
        self.of_network: dict[int, list[Array]] = {}
        self.trace = self.along = self.total = 0.0
        self.network = [torch.from_numpy(value) for value in problem.network]

    def undivided(self) -> None:
        """Both sides as one, without meetings: half as many operations, each twice as long."""
        n1, n = self.n1, len(self.problem.rows)
        self._forward(0, n)
        features = self._features(0, n)
        E = _extended(features, features[:n1].mean(axis=0))
        K = self._kernel(E, E[:, :n1])
        self._observe(E[:, :n1], K[:n1])
        self._hold_out(E[:, n1:], K[n1:])
        self._held_out(0, 0, n - n1)
        self._pull_observed()
        self._backward(0, n)

    def observed_side(self) -> Generator[None]:
        """The network's pass over the observed rows, K₁₁ and its factor; half of the held-out rows between them."""
        n1 = self.n1
        self._forward(0, n1 // 2)
        yield
        features = self._features(0, n1)
        E1 = _extended(features, features.mean(axis=0))
        self._observe(E1, self._kernel(E1, E1))
        yield
        self._held_out(0, 0, self.cut)
        yield
        self._pull_observed()
        yield
        self._backward(0, (n1 + self.cut) // 2)

    def held_out_side(self) -> Generator[None]:
        """The network's pass over the held-out rows and K₂₁; the other half of the held-out rows."""
        n1, n = self.n1, len(self.problem.rows)
        self._forward(n1 // 2, n1)
        yield
        self._forward(n1, n)
        first = self._features(0, n1)
        centre = first.mean(axis=0)
        E2 = _extended(self._features(n1, n), centre)
        self._hold_out(E2, self._kernel(E2, _extended(first, centre)))
        yield
        self._held_out(1, self.cut, n - n1)
        yield
        # Its own held-out rows wait for nothing; the observed rows for what the other side does meanwhile.
        self._backward(n1 + self.cut, n)
        yield
        self._backward((n1 + self.cut) // 2, n1 + self.cut)

    def gradients(self) -> HalvedGradients:
        """What both sides have found, put together."""
        _, _, _, p_variance, _, lengthscale, scale, noise, _, _ = self.problem
        # Sums have an order, whoever was first.
        shares = [self.shares[side] for side in sorted(self.shares)]
        n2 = len(p_variance)
        error = sum(share.error for share in shares)
        by_noise = 1 / (n2 * noise)
        # K₁₁ was kept with the noise on its diagonal.
        total = self.total - noise * self.trace
        order = sorted(self.of_network)
        along = self.along + sum(share.along for share in shares)
        return HalvedGradients(
            ell=0.5 * (_LOG_2PI + math.log(noise) + error * by_noise),
            kl=0.5 * (sum(share.kl for share in shares) / n2 - 1),
            lengthscale=-along / lengthscale**3,
            scale=total / scale + sum(share.of_variance for share in shares),
            noise=self.trace + 0.5 * by_noise * (n2 - error / noise),
            network=[_sum(parts) for parts in zip(*(self.of_network[start] for start in order), strict=True)],
        )

    def _forward(self, start: int, end: int) -> None:
        x = torch.from_numpy(self.problem.rows[start:end])
        for index, output in enumerate(self.outputs):
            weight, bias = self.network[2 * index : 2 * index + 2]
            if index:
                x.relu_()
            x = torch.addmm(bias, x, weight.mT, out=torch.from_numpy(output[start:end]))

    def _features(self, start: int, end: int) -> Array:
        return self.outputs[-1][start:end].astype(self.of_features.dtype, copy=False)

    @np.errstate(all="ignore")
    def _kernel(self, E: Array, first: Array) -> Array:
        """s·exp(−|a − b|² / 2ℓ²) of rows a with the observed rows b, as one power of two, kept clear of underflow."""
        factor, shift = _LOG2_E / self.problem.lengthscale**2, math.log2(self.problem.scale)
        d = len(E) - 2
        b = np.empty_like(first)
        np.multiply(first[:d], factor, out=b[:d])
        b[d] = factor
        np.multiply(first[d], factor, out=b[d + 1])
        b[d + 1] += shift
        K = np.matmul(E.T, b)
        torch.from_numpy(K).clamp_(LOWEST_EXPONENT + shift, shift)
        return np.exp2(K, out=K)

    def _hold_out(self, E2: Array, K21: Array) -> None:
        self.E2, self.K21 = E2, K21

    def _observe(self, E1: Array, K11: Array) -> None:
        """Add the noise to K₁₁'s diagonal, factorise it, and solve for the observed targets."""
        n1, noise = self.n1, self.problem.noise
        self.E1 = E1
        K11.reshape(-1)[:: n1 + 1] = self.problem.scale + noise
        self.K11 = K11
        self.L = cholesky_of_array(K11, name=self.problem.name)
        y1 = torch.from_numpy(self.problem.targets[:n1]).unsqueeze(-1)
        v = torch.linalg.solve_triangular(self.L, y1, upper=False)
        self.alpha = torch.linalg.solve_triangular(self.L.mT, v, upper=True).squeeze(-1).numpy()
        self.v = v.squeeze(-1).numpy()

    @np.errstate(all="ignore")
    def _held_out(self, side: int, start: int, end: int) -> None:
        """Posterior, objective and gradients of some of the held-out rows; Aᵀ and Wᵀ have a row for each."""
        _, targets, p_mean, p_variance, beta, _, scale, noise, _, _ = self.problem
        n1, n2 = self.n1, len(p_mean)
        K21, E2 = self.K21[start:end], self.E2[:, start:end]
        p_mean, p_variance = p_mean[start:end], p_variance[start:end]
        A = torch.linalg.solve_triangular(self.L.mT, torch.from_numpy(K21), upper=True, left=False)
        W = torch.linalg.solve_triangular(self.L, A, upper=False, left=False).numpy()
        reduced = A.numpy()
        mean, variance = reduced @ self.v, scale - np.einsum("ij,ij->i", reduced, reduced)
        floor = RELATIVE_VARIANCE_FLOOR * scale
        above_floor = variance > floor
        np.maximum(variance, floor, out=variance)

        error, shift, ratio = mean - targets[n1 + start : n1 + end], mean - p_mean, variance / p_variance
        by_noise, by_p = 1 / (n2 * noise), (beta / n2) / p_variance
        sum_error = float(error @ error + variance.sum())
        sum_kl = float((ratio + shift * shift / p_variance - np.log(ratio)).sum())
        g = error * by_noise + shift * by_p
        of_variance = 0.5 * (by_p + by_noise - (beta / n2) / variance) * above_floor

        D = W * (2 * of_variance)[:, None]
        G11 = _lower_product(W, D)
        P21 = _plus_outer(D, -g, self.alpha)
        np.negative(np.multiply(P21, K21, out=P21), out=P21)
        along = self._pull(self.E1 @ P21.T, E2, n1 + start)
        self.shares[side] = _Share(sum_error, sum_kl, float(of_variance.sum()), along, G11, g @ W, E2 @ P21)

    @np.errstate(all="ignore")
    def _pull_observed(self) -> None:
        """Gradient by the features of the observed rows, from all held-out rows' shares."""
        shares = [self.shares[side] for side in sorted(self.shares)]
        P11 = _sum([share.G11 for share in shares])
        for start, end in _blocks(self.n1):
            P11[start:end, start:end] *= 0.5
        _plus_outer(P11, -_sum([share.Wg for share in shares]), self.alpha)
        self.trace = float(P11.trace())
        np.multiply(P11, self.K11, out=P11)
        first = self.E1 @ P11.T
        first += _sum([share.to_first for share in shares])
        self.total = float(first[-1].sum())
        first += self.E1 @ P11
        self.along = self._pull(first, self.E1, 0)

    def _pull(self, towards: Array, E: Array, start: int) -> float:
        """Gradient by features, from sums of columns with the sum of weights last; returns it times the features."""
        a = E[:-2]
        pull = towards[:-2] - towards[-1] * a
        np.multiply(pull.T, self.problem.lengthscale**-2, out=self.of_features[start : start + E.shape[1]])
        return float(np.vdot(pull, a))

    @np.errstate(all="ignore")
    def _backward(self, start: int, end: int) -> None:
        gradient = self.of_features[start:end].astype(self.problem.rows.dtype, copy=False)
        found: list[Array] = []
        for index in reversed(range(len(self.outputs))):
            x = self.outputs[index - 1][start:end] if index else self.problem.rows[start:end]
            found += [gradient.sum(axis=0), gradient.T @ x]
            if index:
                gradient = gradient @ self.problem.network[2 * index]
                # ReLU's output is positive where its input was.
                _only_where_positive(gradient, x)
        self.of_network[start] = found[::-1]


def _sum(parts: Sequence[Array]) -> Array:
    """The sum in this order, in place of the first."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _extended(x: Array, centre: Array) -> Array:
    """Columns a from a centre, then minus half their squared lengths, then one: two multiply to −½|a − b|²."""
    d = x.shape[1]
    E = np.empty((d + 2, len(x)), x.dtype)
    a = np.subtract(x.T, centre[:, None], out=E[:d])
    np.multiply(np.square(a).sum(axis=0), -0.5, out=E[d])
    E[d + 1] = 1
    return E


def _blocks(n: int) -> list[tuple[int, int]]:
    blocks = max(1, round(n / _BLOCK))
    return list(pairwise(n * index // blocks for index in range(blocks + 1)))


def _lower_product(W: Array, D: Array) -> Array:
    """WᵀD, which is symmetric, with zero in place of the blocks above the diagonal ones."""
    n = W.shape[1]
    out = np.empty((n, n), W.dtype)
    for start, end in _blocks(n):
        np.matmul(W[:, start:end].T, D[:, :end], out=out[start:end, :end])
        out[start:end, end:] = 0
    return out


def _plus_outer(matrix: Array, column: Array, row: Array) -> Array:
    """A matrix with a product of rank one added in place: one pass of torch's, where NumPy takes two."""
    torch.from_numpy(matrix).addcmul_(torch.from_numpy(column).unsqueeze(-1), torch.from_numpy(row))
    return matrix


def _only_where_positive(gradient: Array, x: Array) -> None:
    """Zero the entries of a gradient where x is not positive; NumPy would turn a mask into numbers first."""
    out = torch.from_numpy(gradient)
    _THRESHOLD_BACKWARD(out, torch.from_numpy(x), 0, grad_input=out)
