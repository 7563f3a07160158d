"""The evidence of a kernel with one multiplier per column, its gradient written out, and the search for its maximum.

With C = s·k(x∘r)/normaliser + σ²I, α = C⁻¹y and M = ½(ααᵀ − C⁻¹), the derivative of the log evidence by anything in C
is ⟨M, ∂C⟩: one factorisation, one inverse and one pass back through the kernel give the gradient by all columns.

Multipliers are r = exp(a + deviation·z): z, one per group of columns, is standard normal, a is common to all. So a
deviation of zero is the isotropic kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gdkl.guide.evidence import LITTLE_NOISE, NormalPrior
from gdkl.guide.kernels import GuideKernel, as_kernel_function
from gdkl.infinite import InfiniteNetwork, Pullback, closed_form
from gdkl.numerics import OptionError, Scratch, Vector, minimise

#: Normal priors on the logarithms of common multiplier, output scale and noise: mean and deviation. They are weak, and
#: keep hyperparameters from running away where the targets are all signal or all noise. A common multiplier of one, not
#: fitted, costs 0.03 to 0.06 of LL on nine tables, isotropic or not.
_COMMON, _SCALE, _NOISE = NormalPrior(0.0, 1.0), NormalPrior(0.0, 3.0), NormalPrior(-4.0, 3.0)
NOISE_MEAN = _NOISE.mean
#: The farthest that a logarithm, or z, may go: beyond it kernels overflow.
_FARTHEST = 12.0
#: The search ends where an iteration gains less than this per row: a tenth of it takes a third more evaluations and has
#: no better predictions (twelve tables, 500 rows, one split: LL 0.007 lower in the mean).
_TOLERANCE = 1e-4
#: The objective where the matrix has no factor: the line search steps back.
_REFUSED = 1e10

#: Log scale and log noise at which every covariance matrix has a factor.
_HALF_NOISE = (math.log(0.5), math.log(0.5))

#: From rows to their Gram matrix, and to what takes a derivative by it to one by the rows.
DifferentiableGram: TypeAlias = Callable[[Tensor], tuple[Tensor, Pullback]]


def differentiable_gram(kernel: GuideKernel) -> DifferentiableGram:
    """In closed form for dense networks of piecewise linear or one layer of RBF units, by autograd for all others.

    What it returns is for one thread. The Gram matrix is the caller's to change; the next call overwrites it.
    """
    chain = closed_form(kernel) if isinstance(kernel, InfiniteNetwork) else None
    function = as_kernel_function(kernel)

    def by_autograd(x: Tensor) -> tuple[Tensor, Pullback]:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            K = function.gram(x)
        if not K.requires_grad:
            raise OptionError("relevances need a guide with gradients by its rows, by autograd.")
        return K.detach(), lambda G: torch.autograd.grad(K, x, G)[0]

    return by_autograd if chain is None else partial(chain.gram, scratch=Scratch())


class EvidenceGradient(NamedTuple):
    """Log evidence, summed over outputs, and its derivatives by the logarithms of multipliers, scale and noise."""

    value: float
    by_multipliers: Tensor
    by_scale: float
    by_noise: float


@dataclass(frozen=True)
class RelevanceEvidence:
    """The evidence of targets ``(outputs, n)`` at rows ``(n, d)``.

    Row by row, ``(n,)``, ``noise_scale`` multiplies the noise, and ``noise_added`` is beside it.
    """

    gram: DifferentiableGram
    rows: Tensor
    targets: Tensor
    noise_scale: Tensor
    noise_added: Tensor
    scratch: Scratch = field(default_factory=Scratch)

    @torch.no_grad()
    def __call__(self, multipliers: Tensor, scale: float, noise: float) -> EvidenceGradient | None:
        """Value and gradient at multipliers ``(d,)``; None where the matrix is not positive definite."""
        y, (outputs, n) = self.targets, self.targets.shape
        x = self.rows * multipliers
        K, pullback = self.gram(x)
        normaliser = float(K.diagonal().mean())
        C = K.mul_(scale / normaliser)
        C.diagonal().add_(noise * self.noise_scale + self.noise_added)
        info = torch.empty((), dtype=torch.int32, device=C.device)
        L, _ = torch.linalg.cholesky_ex(C, out=(self.scratch("L", C, n, n), info))
        if int(info) != 0 or not normaliser < math.inf:
            return None
        alpha = torch.cholesky_solve(y.mT, L)
        fit, log_root = float((y.mT * alpha).sum()), float(L.diagonal().log().sum())
        M = (
            torch.cholesky_inverse(L, out=self.scratch("M", C, n, n))
            .mul_(-outputs / 2)
            .addmm_(alpha, alpha.mT, alpha=0.5)
        )
        by_noise = noise * float(M.diagonal() @ self.noise_scale)
        # ⟨M, C⟩ = ½(yᵀα − n) is known: what is left of it beside all noise is the kernel's part.
        by_scale = 0.5 * (fit - outputs * n) - by_noise - float(M.diagonal() @ self.noise_added)
        G = M.mul_(scale / normaliser)
        # Variances also change the normaliser.
        G.diagonal().sub_(by_scale / (n * normaliser))
        value = -0.5 * (fit + outputs * n * math.log(2 * math.pi)) - outputs * log_root
        found = EvidenceGradient(value, (x * pullback(G)).sum(dim=0), by_scale, by_noise)
        return found if math.isfinite(value) and bool(torch.isfinite(found.by_multipliers).all()) else None


class Evidence(Protocol):
    """An evidence of targets ``(outputs, n)`` at rows ``(n, d)``, as a function of hyperparameters."""

    @property
    def rows(self) -> Tensor: ...  # noqa: D102

    @property
    def targets(self) -> Tensor: ...  # noqa: D102

    def __call__(self, multipliers: Tensor, scale: float, noise: float) -> EvidenceGradient | None:
        """Value and gradient at multipliers ``(d,)``; None where it is not finite."""
        ...


class Hyperparameters(NamedTuple):
    """Log multipliers ``(groups,)``, log scale, log noise, and the log evidence per row and output."""

    log_multipliers: Tensor
    log_scale: float
    log_noise: float
    log_evidence: float = -math.inf


def search(
    evidence: Evidence,
    starts: Sequence[Hyperparameters],
    groups: Tensor,
    *,
    deviation: float,
    noise_floor: float,
    iterations: int,
    little_noise: bool = False,
) -> Hyperparameters | None:
    """The most probable hyperparameters that L-BFGS finds from any start; None if no evidence was finite.

    Where that of no start is, it begins once more where half of the variance is noise and no column differs from
    another. ``groups``, ``(d,)``, numbers the group of each column; ``little_noise`` is as for `fit_by_evidence`.
    """
    count, numbers = len(starts[0].log_multipliers), evidence.targets.numel()
    # Of the vector that is searched for: a, z, log scale and log noise.
    noise = LITTLE_NOISE if little_noise else _NOISE
    means, deviations = (np.array([_COMMON[i], *[float(i)] * count, _SCALE[i], noise[i]]) for i in (0, 1))
    bounds = np.array([(-_FARTHEST, _FARTHEST)] * (count + 2) + [(math.log(noise_floor), _FARTHEST)])

    def objective(v: Vector) -> tuple[float, Vector]:
        at = read(v)
        found = evidence(at.log_multipliers.exp()[groups], math.exp(at.log_scale), math.exp(at.log_noise))
        if found is None:
            return _REFUSED, np.zeros_like(v)
        by_group = found.by_multipliers.new_zeros(count).index_add_(0, groups, found.by_multipliers).cpu().numpy()
        gradient = np.array([by_group.sum(), *(deviation * by_group), found.by_scale, found.by_noise])
        z = (v - means) / deviations
        # Per row, so that the first step, which is as long as the gradient, is short.
        return (0.5 * float(z @ z) - found.value) / numbers, (z / deviations - gradient) / numbers

    def read(v: Vector, value: float = math.inf) -> Hyperparameters:
        log_multipliers = torch.as_tensor(v[0] + deviation * v[1:-2]).to(evidence.rows)
        log_evidence = 0.5 * float(np.square((v - means) / deviations).sum()) / numbers - value
        return Hyperparameters(log_multipliers, float(v[-2]), float(v[-1]), log_evidence)

    def vector(start: Hyperparameters) -> Vector:
        log_r = start.log_multipliers.cpu().numpy()
        # The most probable common multiplier, given all of them.
        a = log_r.mean() * count / (count + (deviation / _COMMON.deviation) ** 2)
        z = (log_r - a) / deviation if deviation > 0 else np.zeros(count)
        return np.clip(np.array([a, *z, start.log_scale, start.log_noise]), *bounds.T)

    safe = Hyperparameters(torch.zeros_like(starts[0].log_multipliers), *_HALF_NOISE)
    for some in (starts, [safe]):
        results = [
            minimise(
                objective,
                vector(start),
                iterations=iterations,
                value_tolerance=_TOLERANCE,
                gradient_tolerance=1e-5,
                bounds=bounds,
            )
            for start in some
        ]
        best = min(results, key=lambda result: result.value)
        if best.value < _REFUSED:
            return read(best.x, best.value)
    return None
