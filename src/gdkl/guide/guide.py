"""The guide: a frozen Gaussian process that answers "what would you believe at x*, given D1?" for any split."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl.gp import (
    NOISE_FLOOR,
    ExactPosterior,
    KernelFunction,
    Marginals,
    ScaledKernel,
    Split,
    condition,
    take_targets,
)
from gdkl.guide.evidence import fit_by_evidence
from gdkl.numerics import DataError, limit_threads, require_memory, tensor_bytes

_MATRIX_NAME = "the guide's kernel matrix"


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
        observed, held_out = split
        variances = self.gram.diagonal(dim1=-2, dim2=-1)
        k22 = torch.take_along_dim(variances.expand(*held_out.shape[:-1], -1), held_out, dim=-1)
        # Work on the normalised Gram with the noise divided by the scale: one product less, and outputs
        # whose ratio is the same could share a factor.
        unit = condition(
            self._block(split).unsqueeze(-3),
            k22.unsqueeze(-2),
            take_targets(self.targets, observed),
            self.noise / self.scale,
            name=_MATRIX_NAME,
        )
        return Marginals(unit.mean, self.scale.unsqueeze(-1) * unit.variance)

    def _block(self, split: Split) -> Tensor:
        """K₁₁ with K₂₁ below it for each split: whole rows first, then columns, twice as fast as entry by entry."""
        members, n = self.gram.shape[:2]
        observed, order = (index.flatten(0, -2) for index in (split.observed, torch.cat(split, dim=-1)))
        first_row = n * (torch.arange(len(order), device=order.device) % members).unsqueeze(-1)
        rows = self.gram.flatten(0, 1).index_select(0, (order + first_row).flatten()).unflatten(0, order.shape)
        block = torch.gather(rows, -1, observed.unsqueeze(-2).expand(*order.shape, -1))
        return block.unflatten(0, split.observed.shape[:-1])

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


def _fit_guide(kernel: KernelFunction, rows: Tensor, targets: Tensor, noise_floor: float) -> Guide:
    gram = kernel.gram(rows)
    normaliser = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    if not bool((normaliser > 0).all()) or not bool(torch.isfinite(normaliser).all()):
        raise DataError("the guide's kernel has no positive finite variance on the training rows.")
    gram = gram / normaliser[..., None, None]
    fit = fit_by_evidence(gram, targets, noise_floor)
    return Guide(kernel, gram, normaliser, targets, fit.scale, fit.noise, fit.log_evidence)
