"""The guide: a frozen Gaussian process that answers "what would you believe at x*, given D1?" for any split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gdkl.gp import (
    NOISE_FLOOR,
    RELATIVE_VARIANCE_FLOOR,
    ExactPosterior,
    KernelFunction,
    Marginals,
    ScaledKernel,
    Split,
    condition_block,
    members_apart,
)
from gdkl.guide.evidence import fit_by_evidence
from gdkl.numerics import DataError, cholesky, cholesky_of_array, limit_threads, require_memory, set_aside, tensor_bytes

_MATRIX_NAME = "the guide's kernel matrix"

#: Observed rows up to which a split of one member is answered in one go by NumPy.
_MOST_ALONE = 1000


@dataclass(frozen=True)
class Guide:
    """A Gaussian process with a fixed Gram matrix, an output scale and a noise, on fixed training rows.

    Attributes:
        kernel: The kernel function, unscaled.
        gram: Gram matrix of the training rows divided by its mean diagonal, ``(members, n, n)``.
        normaliser: That mean diagonal, ``(members,)``: a deep infinite network has entries near 1e10.
        targets: Training targets, ``(members, outputs, n)``.
        scale: Output scale over the normalised Gram, ``(members, outputs)``.
        noise: Noise variance, ``(members, outputs)``.
        log_evidence: Log evidence a row, ``(members, outputs)``.
    """

    kernel: KernelFunction
    gram: Tensor
    normaliser: Tensor
    targets: Tensor
    scale: Tensor
    noise: Tensor
    log_evidence: Tensor

    @torch.no_grad()
    def posterior(self, split: Split) -> Marginals:
        """Latent marginals p(f | x, D1) on the held-out rows of one split a member, or of many.

        Args:
            split: Indices ``(..., members, n1)`` and ``(..., members, n2)``.

        Returns:
            Means and variances, ``(..., members, outputs, n2)``.
        """
        return self.posterior_later(split)()

    @torch.no_grad()
    def posterior_later(self, split: Split) -> Callable[[], Marginals]:
        """`posterior`, to be called for; threads that have nothing else to do may begin with it before."""
        observed, order = (index.flatten(0, -2) for index in (split.observed, torch.cat(split, dim=-1)))
        shape = split.observed.shape[:-1]
        if not self.answers_apart(observed.shape[-1]):

            def at_once() -> Marginals:
                p = self._some(torch.arange(len(observed), device=observed.device), observed, order)
                return Marginals(*(value.unflatten(0, shape) for value in p))

            return at_once
        # A question that torch's own threads do not share is answered by NumPy, with fewer and shorter calls.
        small = self.targets.shape[1] == 1 and observed.shape[-1] <= _MOST_ALONE and torch.get_num_threads() == 1
        ask = self._one if small else self._some
        pieces = set_aside(len(observed), lambda index: ask(index, observed[index], order[index]))

        def all_answers() -> Marginals:
            return Marginals(
                *(torch.stack(values).unflatten(0, shape) for values in zip(*pieces.results(), strict=True))
            )

        return all_answers

    def answers_apart(self, n1: int) -> bool:
        """Whether each member's split with this many observed rows is answered on its own: no more memory for many."""
        return members_apart(self.gram, n1)

    def _one(self, number: int, observed: Tensor, order: Tensor) -> Marginals:
        """The same as `_some` for one split of one member with one output on a CPU."""
        member, n1 = number % len(self.gram), len(observed)
        gram, first, rows = self.gram[member].numpy(), observed.numpy(), order.numpy()
        scale, noise = float(self.scale[member, 0]), float(self.noise[member, 0])
        # Whole rows first, then columns.
        K = gram.take(rows, axis=0).take(first, axis=1)
        K11, K21 = K[:n1], K[n1:]
        K11.reshape(-1)[:: n1 + 1] += noise / scale
        L = cholesky_of_array(K11, name=_MATRIX_NAME)
        known = torch.from_numpy(self.targets[member, 0].numpy()[first]).unsqueeze(-1)
        v = torch.linalg.solve_triangular(L, known, upper=False).squeeze(-1).numpy()
        A = torch.linalg.solve_triangular(L.mT, torch.from_numpy(K21), upper=True, left=False).numpy()
        prior = gram.diagonal()[rows[n1:]]
        variance = np.maximum(prior - np.einsum("ij,ij->i", A, A), RELATIVE_VARIANCE_FLOOR * prior)
        return Marginals(*(torch.from_numpy(value).unsqueeze(0) for value in (A @ v, scale * variance)))

    def _some(self, number: int | Tensor, observed: Tensor, order: Tensor) -> Marginals:
        """Marginals ``(..., outputs, n2)`` of one split of one member by its number, or of many of them at once.

        Args:
            number: Of the splits, counted over all members of the first split, then those of the second.
            observed: Indices ``(..., n1)``.
            order: Indices ``(..., n)`` of the observed, then the held-out rows.
        """
        members, n = self.gram.shape[:2]
        n1, member = observed.shape[-1], number % members
        diagonal = self.gram.diagonal(dim1=-2, dim2=-1)
        diagonal, scale, noise, targets = (value[member] for value in (diagonal, self.scale, self.noise, self.targets))
        # Whole rows first, then columns: twice as fast as entry by entry.
        if isinstance(member, Tensor):
            rows = self.gram.flatten(0, 1).index_select(0, (observed + n * member.unsqueeze(-1)).flatten())
            rows = rows.unflatten(0, observed.shape)
        else:
            rows = self.gram[member].index_select(0, observed)
        block = torch.gather(rows, -1, order.unsqueeze(-2).expand(*observed.shape, -1))
        variances = torch.gather(diagonal, -1, order[..., n1:])
        known = torch.take_along_dim(targets, observed.unsqueeze(-2), dim=-1)
        # Work on the normalised Gram with the noise divided by the scale: one product less, and outputs
        # whose ratio is the same could share a factor.
        unit = condition_block(block.unsqueeze(-3), variances.unsqueeze(-2), known, noise / scale, name=_MATRIX_NAME)
        return Marginals(unit.mean, scale.unsqueeze(-1) * unit.variance)

    @torch.no_grad()
    def left_out_errors(self, groups: Tensor | None = None) -> Tensor:
        """What each training target has beyond its prediction from all others, ``(members, outputs, n)``.

        With C = K + (σ²/s)I and α = C⁻¹y it is α / diag(C⁻¹), at the price of one inverse; of a group of rows g that
        are left out together, [C⁻¹]_gg⁻¹ α_g. Scale and noise were fitted to all rows; two numbers do not make that too
        good to be true.

        Args:
            groups: Number of the group that each row is left out with, ``(n,)``; None to leave out one at a time.
        """
        C = self.gram.unsqueeze(-3).expand(*self.targets.shape, -1).clone()
        C.diagonal(dim1=-2, dim2=-1).add_((self.noise / self.scale).unsqueeze(-1))
        inverse = torch.cholesky_inverse(cholesky(C, name=_MATRIX_NAME))
        alpha = (inverse @ self.targets.unsqueeze(-1)).squeeze(-1)
        errors = alpha / inverse.diagonal(dim1=-2, dim2=-1)
        if groups is not None:
            for group in torch.nonzero(torch.bincount(groups) > 1).flatten():
                rows = torch.nonzero(groups == group).flatten()
                block = inverse[..., rows[:, None], rows]
                errors[..., rows] = torch.linalg.solve(block, alpha[..., rows])
        return errors

    def bytes_per_split(self) -> int:
        """Peak memory that `posterior` takes for one split of all members."""
        members, outputs, n = self.targets.shape
        # Whole rows, K11 and K21, K11 with its noise, its factor, and the solution.
        return members * outputs * tensor_bytes(9, n // 2 + 1, n // 2 + 1, dtype=self.gram.dtype)

    def predictor(self, rows: Tensor) -> ExactPosterior:
        """The guide as a model of its own, conditioned on all rows ``(members, n, d)``."""
        kernel = ScaledKernel(self.kernel, self.scale / self.normaliser.unsqueeze(-1))
        return ExactPosterior.condition(kernel, rows, self.targets, self.noise, name=_MATRIX_NAME)


@torch.no_grad()
def fit_guide(kernel: KernelFunction, rows: Tensor, targets: Tensor, *, noise_floor: float = NOISE_FLOOR) -> Guide:
    """Compute the Gram once, normalise it and fit output scale and noise by evidence.

    Args:
        kernel: Kernel function of the guide.
        rows: Training inputs, ``(members, n, d)``.
        targets: Training targets, ``(members, outputs, n)``.
        noise_floor: Smallest noise variance allowed.
    """
    members, n, _ = rows.shape
    require_memory(
        4 * members * tensor_bytes(n, n, dtype=rows.dtype),
        what=f"the guide's kernel matrix of {n} rows",
        remedy="Train on fewer rows.",
        device=rows.device,
    )
    with limit_threads(n):
        return _fit_guide(kernel, rows, targets, noise_floor)


#: Rows that scale and noise are fitted on at most: two numbers need no more, and the fit's cost grows with n³.
_EVIDENCE_ROWS = 4000


def _subset(gram: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Gram matrix and targets of at most `_EVIDENCE_ROWS` rows, drawn at random but always the same ones."""
    n = gram.shape[-1]
    if n <= _EVIDENCE_ROWS:
        return gram, targets
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_EVIDENCE_ROWS].sort().values
    chosen = chosen.to(gram.device)
    return gram.index_select(-2, chosen).index_select(-1, chosen), targets.index_select(-1, chosen)


def _fit_guide(kernel: KernelFunction, rows: Tensor, targets: Tensor, noise_floor: float) -> Guide:
    gram = kernel.gram(rows)
    normaliser = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    if not bool((normaliser > 0).all()) or not bool(torch.isfinite(normaliser).all()):
        raise DataError("the guide's kernel has no positive finite variance on the training rows.")
    gram /= normaliser[..., None, None]
    fit = fit_by_evidence(*_subset(gram, targets), noise_floor)
    return Guide(kernel, gram, normaliser, targets, fit.scale, fit.noise, fit.log_evidence)
