"""A Gaussian process with one relevance per column: the kernel sees columns times positive multipliers.

For an infinite network that is a first layer whose weights have a variance of their own for each column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gdkl.gp import NOISE_FLOOR, Marginals, Solver
from gdkl.guide.evidence import fit_by_evidence
from gdkl.guide.grams import normalised_gram
from gdkl.guide.guide import MATRIX_NAME
from gdkl.guide.kernels import GuideKernel, as_kernel_function
from gdkl.guide.relevance_search import Hyperparameters, RelevanceEvidence, differentiable_gram, search
from gdkl.numerics import limit_threads, thread_map, thread_pool

#: Rows that relevances are fitted to at most, and scale and noise behind them; the same random ones each time.
MOST_ROWS, MOST_ROWS_OF_SCALE = 1000, 4000

#: If the log of signal over noise is less at the isotropic start, the search also begins where both are one half.
_LITTLE_SIGNAL = -1.0


@dataclass(frozen=True)
class RelevanceFit:
    """Hyperparameters of a Gaussian process with one multiplier per column.

    Attributes:
        kernel: The kernel of multiplied rows, unscaled.
        multipliers: What the columns are multiplied by, ``(d,)``.
        scale: Output scale over covariances divided by the normaliser.
        noise: Noise variance.
        normaliser: Mean variance of the rows that the hyperparameters were fitted to.
        log_evidence: Log evidence per row and output.
    """

    kernel: GuideKernel
    multipliers: Tensor
    scale: float
    noise: float
    normaliser: float
    log_evidence: float

    @torch.no_grad()
    def left_out(
        self, rows: Tensor, targets: Tensor, groups: Tensor | None = None, noise_scale: Tensor | None = None
    ) -> Marginals:
        """Mean and variance of each target given all others, noise included; ``groups`` as for `Solver.left_out`."""
        return self._solver(rows, noise_scale).left_out(targets, groups)

    @torch.no_grad()
    def predict(self, rows: Tensor, targets: Tensor, new: Tensor, noise_scale: Tensor | None = None) -> Marginals:
        """Mean and variance of targets at new rows ``(m, d)`` given those of others, noise included."""
        kernel, factor = as_kernel_function(self.kernel), self.scale / self.normaliser
        asked = new * self.multipliers
        K12 = factor * kernel.cross(rows * self.multipliers, asked)
        mean, variance = self._solver(rows, noise_scale).marginals(K12, factor * kernel.diagonal(asked), targets)
        return Marginals(mean, variance + self.noise)

    def _solver(self, rows: Tensor, noise_scale: Tensor | None) -> Solver:
        K = as_kernel_function(self.kernel).gram(rows * self.multipliers) * (self.scale / self.normaliser)
        return Solver.of(K, self.noise * (K.new_ones(1) if noise_scale is None else noise_scale), name=MATRIX_NAME)


@torch.no_grad()
def fit_relevance(
    kernel: GuideKernel,
    rows: Tensor,
    targets: Tensor,
    *,
    deviation: float | None,
    groups: Sequence[int] | Tensor | None = None,
    noise_floor: float = NOISE_FLOOR,
    noise_scale: Tensor | None = None,
    start: RelevanceFit | None = None,
    iterations: int = 150,
) -> RelevanceFit:
    """Fit one multiplier per column, an output scale and a noise by evidence, with priors.

    Above 1000 rows the multipliers are fitted to 1000 of them, scale and noise to at most 4000. Where no evidence is
    finite all multipliers are one.

    Args:
        kernel: An infinite network, or any kernel with gradients by its rows. Dense networks of piecewise linear
            activations are fast, others take autograd.
        rows: Standardised rows ``(n, d)``, float64.
        targets: Standardised targets ``(n,)``, or ``(outputs, n)`` for hyperparameters that serve all outputs.
        deviation: Prior standard deviation of log multipliers around a common one; 0 for the isotropic kernel, None for
            a kernel as it is, without gradients.
        groups: For each column the number of its group, from 0 on; a group shares a multiplier. None for one each.
        noise_floor: Smallest noise variance.
        noise_scale: What the noise variance of each row is multiplied by, ``(n,)``.
        start: A fit to begin with: to other rows, or with another deviation.
        iterations: Most steps of L-BFGS.

    Example:
        >>> from gdkl import infinite
        >>> x = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> fit = fit_relevance(infinite.mlp(), x, torch.sin(2 * x[:, 1]), deviation=1.0)
        >>> int(fit.multipliers.argmax())
        1
    """
    n, d = rows.shape
    y = targets.reshape(-1, n)
    own = rows.new_ones(n) if noise_scale is None else noise_scale
    index = (torch.arange(d) if groups is None else torch.as_tensor(groups)).to(rows.device)
    zeros = rows.new_zeros(int(index.max()) + 1)

    def fit_scale(most: int, log_multipliers: Tensor) -> Hyperparameters:
        some = _some(n, most, rows.device)
        scaled = rows[some] * log_multipliers.exp()[index]
        return _fit_scale(kernel, scaled, y[:, some], own[some], noise_floor, log_multipliers)

    def find(deviation: float) -> Hyperparameters | None:
        if start is None:
            starts = [fit_scale(MOST_ROWS, zeros)]
            if starts[0].log_scale - starts[0].log_noise < _LITTLE_SIGNAL:
                starts.append(Hyperparameters(zeros, math.log(0.5), math.log(0.5)))
        else:
            log_multipliers = zeros.scatter_reduce(0, index, start.multipliers.log(), "mean", include_self=False)
            starts = [Hyperparameters(log_multipliers, math.log(start.scale), math.log(start.noise))]
        some = _some(n, MOST_ROWS, rows.device)
        evidence = RelevanceEvidence(differentiable_gram(kernel), rows[some], y[:, some], own[some])
        return search(evidence, starts, index, deviation=deviation, noise_floor=noise_floor, iterations=iterations)

    with limit_threads(min(n, MOST_ROWS)):
        found = None if deviation is None else find(deviation)
        if found is None or n > MOST_ROWS:
            found = fit_scale(MOST_ROWS_OF_SCALE, zeros if found is None else found.log_multipliers)
    multipliers = found.log_multipliers.exp()[index]
    scale, noise = math.exp(found.log_scale), math.exp(found.log_noise)
    rows = rows[_some(n, MOST_ROWS_OF_SCALE, rows.device)]
    normaliser = float(as_kernel_function(kernel).diagonal(rows * multipliers).mean())
    return RelevanceFit(kernel, multipliers, scale, noise, normaliser, found.log_evidence)


def fit_relevance_folds(
    kernel: GuideKernel,
    rows: Tensor,
    targets: Tensor,
    used: Tensor,
    starts: Sequence[RelevanceFit] | None = None,
    **options: Any,
) -> list[RelevanceFit]:
    """Fits to some of the rows each, ``(folds, k)`` positions, from fits to the same rows; options of `fit_relevance`.

    A fit to all rows is no start: it knows the targets that a fold holds out. Idle cores share the folds.
    """

    def one(k: int) -> RelevanceFit:
        start = None if starts is None else starts[k]
        return fit_relevance(kernel, rows[used[k]], targets[..., used[k]], start=start, **options)

    with thread_pool(torch.get_num_threads()):
        return thread_map(len(used), one)


def _some(n: int, most: int, device: torch.device) -> Tensor:
    """Indices of at most so many of n rows, drawn at random but always the same ones."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values.to(device)


def _fit_scale(
    kernel: GuideKernel, rows: Tensor, y: Tensor, own: Tensor, noise_floor: float, log_multipliers: Tensor
) -> Hyperparameters:
    """Scale and noise by one eigendecomposition, at multiplied rows; the geometric mean of the outputs' own."""
    gram, _ = normalised_gram(as_kernel_function(kernel), rows[None], y.dtype, copies=4)
    # Divided by its own noise scale each row has the same noise.
    root = own.rsqrt()
    fit = fit_by_evidence(gram * root * root.unsqueeze(-1), (y * root)[None], noise_floor)
    log_evidence = float(fit.log_evidence.mean() + root.log().mean())
    return Hyperparameters(log_multipliers, float(fit.scale.log().mean()), float(fit.noise.log().mean()), log_evidence)
