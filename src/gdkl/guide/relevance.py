"""A Gaussian process with one relevance per column: the kernel sees columns times positive multipliers.

For an infinite network that is a first layer whose weights have a variance of their own for each column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from gdkl.gp import NOISE_FLOOR, Marginals, Solver
from gdkl.guide.evidence import fit_by_evidence, informative
from gdkl.guide.grams import normalised_gram
from gdkl.guide.guide import MATRIX_NAME
from gdkl.guide.kernels import GuideKernel, as_kernel_function
from gdkl.guide.relevance_search import Hyperparameters, RelevanceEvidence, differentiable_gram, search
from gdkl.numerics import SHARED_SMALLEST, limit_threads, thread_map, thread_pool, threads_for

#: Rows that relevances are fitted to at most, and scale and noise behind them; the same random ones each time.
MOST_ROWS, MOST_ROWS_OF_SCALE = 1000, 4000

#: Noise that what is added to it is first compared with, and steps of L-BFGS from there.
_TYPICAL_NOISE, _SCALE_STEPS = 0.1, 50

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
        self, rows: Tensor, targets: Tensor, groups: Tensor | None = None, row_noise: Tensor | None = None
    ) -> Marginals:
        """Mean and variance of each target given all others, noise included; ``groups`` as for `Solver.left_out`.

        ``row_noise`` are noise variances row by row, ``(n,)``; None for the fit's own.
        """
        return self._solver(rows, row_noise).left_out(targets, groups)

    @torch.no_grad()
    def predict(self, rows: Tensor, targets: Tensor, new: Tensor, row_noise: Tensor | None = None) -> Marginals:
        """Mean and variance of the function at new rows ``(m, d)`` given noisy targets of others."""
        kernel, factor = as_kernel_function(self.kernel), self.scale / self.normaliser
        asked = new * self.multipliers
        K12 = factor * kernel.cross(rows * self.multipliers, asked)
        return self._solver(rows, row_noise).marginals(K12, factor * kernel.diagonal(asked), targets)

    def _solver(self, rows: Tensor, row_noise: Tensor | None) -> Solver:
        K = as_kernel_function(self.kernel).gram(rows * self.multipliers) * (self.scale / self.normaliser)
        return Solver.of(K, K.new_full((1,), self.noise) if row_noise is None else row_noise, name=MATRIX_NAME)


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
    noise_added: Tensor | None = None,
    start: RelevanceFit | None = None,
    iterations: int = 150,
) -> RelevanceFit:
    """Fit one multiplier per column, an output scale and a noise by evidence, with priors.

    Above 1000 rows the multipliers are fitted to 1000 of them, scale and noise to at most 4000. Where no evidence is
    finite, or no target tells anything of it (`gdkl.guide.evidence`), all multipliers are one.

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
        noise_added: What each row has beside it.
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
    tells = informative(y)
    y = y[tells] if bool(tells.any()) else y
    own = rows.new_ones(n) if noise_scale is None else noise_scale
    added = rows.new_zeros(n) if noise_added is None else noise_added
    index = (torch.arange(d) if groups is None else torch.as_tensor(groups)).to(rows.device)
    zeros = rows.new_zeros(int(index.max()) + 1)

    def fit_scale(most: int, log_multipliers: Tensor) -> Hyperparameters:
        some = some_rows(n, most, rows.device)
        scaled = rows[some] * log_multipliers.exp()[index]
        gram, _ = normalised_gram(as_kernel_function(kernel), scaled[None], y.dtype, copies=4)
        found = fit_scale_of(gram[0], y[:, some], own[some], added[some], noise_floor)
        return found._replace(log_multipliers=log_multipliers)

    def find(deviation: float) -> Hyperparameters | None:
        if start is None:
            starts = [fit_scale(MOST_ROWS, zeros)]
            if starts[0].log_scale - starts[0].log_noise < _LITTLE_SIGNAL:
                starts.append(Hyperparameters(zeros, math.log(0.5), math.log(0.5)))
        else:
            log_multipliers = zeros.scatter_reduce(0, index, start.multipliers.log(), "mean", include_self=False)
            starts = [Hyperparameters(log_multipliers, math.log(start.scale), math.log(start.noise))]
        some = some_rows(n, MOST_ROWS, rows.device)
        evidence = RelevanceEvidence(differentiable_gram(kernel), rows[some], y[:, some], own[some], added[some])
        return search(evidence, starts, index, deviation=deviation, noise_floor=noise_floor, iterations=iterations)

    with limit_threads(min(n, MOST_ROWS)):
        found = None if deviation is None or not bool(tells.any()) else find(deviation)
        if found is None or n > MOST_ROWS:
            found = fit_scale(MOST_ROWS_OF_SCALE, zeros if found is None else found.log_multipliers)
    multipliers = found.log_multipliers.exp()[index]
    scale, noise = math.exp(found.log_scale), math.exp(found.log_noise)
    rows = rows[some_rows(n, MOST_ROWS_OF_SCALE, rows.device)]
    normaliser = float(as_kernel_function(kernel).diagonal(rows * multipliers).mean())
    return RelevanceFit(kernel, multipliers, scale, noise, normaliser, found.log_evidence)


def fit_relevance_folds(
    kernel: GuideKernel,
    folds: Sequence[Mapping[str, Tensor | None]],
    starts: Sequence[RelevanceFit] | None = None,
    *,
    fit: Callable[..., RelevanceFit] = fit_relevance,
    **options: Any,
) -> list[RelevanceFit]:
    """Fits to the rows of each fold, from fits to the same rows; options of ``fit``.

    ``folds`` has for each what ``fit`` takes of data: rows, targets, and what is said of their noise.

    A fit to all rows is no start: it knows the targets that a fold holds out. Idle cores share the folds.
    """

    def one(k: int) -> RelevanceFit:
        data: dict[str, Any] = dict(folds[k])
        return fit(kernel, **data, start=None if starts is None else starts[k], **options)

    rows = max(len(cast(Tensor, fold["rows"])) for fold in folds)
    with thread_pool(threads_for(rows, SHARED_SMALLEST)):
        return thread_map(len(folds), one)


def some_rows(n: int, most: int, device: torch.device) -> Tensor:
    """Indices of at most so many of n rows, drawn at random but always the same ones."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values.to(device)


def fit_scale_of(
    gram: Tensor, targets: Tensor, noise_scale: Tensor, noise_added: Tensor, noise_floor: float
) -> Hyperparameters:
    """Scale and noise of a normalised Gram matrix ``(n, n)`` by evidence; the geometric mean of the outputs' own.

    Targets are ``(outputs, n)``. Row by row the noise is multiplied by a factor, and has something beside it.
    """
    tells = informative(targets)
    targets = targets[tells] if bool(tells.any()) else targets
    plain = not bool(noise_added.any())
    # What is added counts as a factor at first, to a typical noise.
    own = noise_scale if plain else noise_scale + noise_added / _TYPICAL_NOISE
    # Divided by its own noise scale each row has the same noise: one eigendecomposition.
    root = own.rsqrt()
    fit = fit_by_evidence((gram * root * root.unsqueeze(-1))[None], (targets * root)[None], noise_floor)
    log_evidence = float(fit.log_evidence.mean() + root.log().mean())
    one = gram.new_zeros(1)
    start = Hyperparameters(one, float(fit.scale.log().mean()), float(fit.noise.log().mean()), log_evidence)
    if plain or not bool(tells.any()):
        return start
    evidence = RelevanceEvidence(
        lambda x: (gram.clone(), lambda _: torch.zeros_like(x)),
        one.expand(len(gram), 1),
        targets,
        noise_scale,
        noise_added,
    )
    index = torch.zeros(1, dtype=torch.long, device=gram.device)
    return search(evidence, [start], index, deviation=0.0, noise_floor=noise_floor, iterations=_SCALE_STEPS) or start
