"""The guide: a frozen Gaussian process that gives p(f | x*, D1), at any rows and given any others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gdkl.gp import (
    ClassLikelihood,
    ExactPosterior,
    KernelFunction,
    LabelTargets,
    LeftOut,
    Marginals,
    ScaledKernel,
    Solver,
    Split,
    floor_variance,
    label_targets,
)
from gdkl.guide.context import context_size, two_contexts
from gdkl.guide.grams import PrecomputedGram, normalised_gram
from gdkl.infinite import unchecked
from gdkl.numerics import DataError, OptionError, chunk_slices, require_memory, rows_per_chunk, tensor_bytes, thread_map

MATRIX_NAME = "the guide's kernel matrix"

#: From this many observed rows on, splits are computed one by one on a CPU: the matrices of one stay in the cache from
#: one operation to the next, and threads can share them. Below it calls cost more than arithmetic.
_ROWS_APART = 64


@dataclass(frozen=True)
class Guide:
    """A Gaussian process with fixed hyperparameters, one for each member and output.

    It gives marginals of latent functions in three ways: on the held-out rows of random splits of its training rows
    (`posterior`); on each half of a mini-batch given the other (`batch_posterior`); and on all rows of a large table
    once, before training (`precompute_marginals`), which `batch_posterior` then looks up.

    Attributes:
        kernel: The kernel function, unscaled.
        normaliser: What covariances are divided by, the mean variance of the training rows, ``(members,)``.
        scale: Output scale over normalised covariances, ``(members, outputs)``, or ``(members, 1)`` for one that all
            outputs share, so that one factorisation serves them.
        noise: Noise variance, of the same shape.
        gram: Normalised Gram matrix of the training rows, ``(members, n, n)``; rows without targets may follow.
        targets: Training targets, ``(members, outputs, n)``.
        score: What the hyperparameters were chosen by: log evidence per row, ``(members, outputs)``, or the mean log
            probability of held-out labels, ``(members, 1)``.
        own_scale: Output scale at which the guide alone predicts best, of the shape of ``scale``.
        likelihood: How labels become targets; None where the targets are numbers.
        label_noise: Variances that targets themselves carry, shape of the targets, or with one output for all. What the
            guide alone predicts has them, times the next.
        label_noise_factor: ``(members,)``.
        batch_label_noise: Whether `batch_posterior` carries the labels' variances.
        split_label_noise: Whether `posterior` does, as it does where the targets are numbers.
        accuracy: Part of held-out labels that the guide alone gets right, ``(members, 1)``.
        symmetric_splits: Whether `posterior` holds out each half of a split in turn.
        source: Where covariances of a batch come from; None to evaluate the kernel.
        table: Precomputed marginals on all rows, ``(outputs, rows)``.
    """

    kernel: KernelFunction
    normaliser: Tensor
    scale: Tensor
    noise: Tensor
    gram: Tensor
    targets: Tensor
    score: Tensor
    own_scale: Tensor
    likelihood: ClassLikelihood | None = None
    label_noise: Tensor | None = None
    label_noise_factor: Tensor = field(default_factory=lambda: torch.ones(1))
    batch_label_noise: bool = False
    split_label_noise: bool = False
    accuracy: Tensor = field(default_factory=lambda: torch.full((1, 1), torch.nan))
    symmetric_splits: bool = False
    source: PrecomputedGram | None = None
    table: Marginals | None = None

    @property
    def outputs(self) -> int:
        """Number of latent functions."""
        return self.targets.shape[1]

    @torch.no_grad()
    def posterior(self, split: Split) -> Marginals:
        """Latent marginals p(f | x, D1) on the held-out rows of one split per member, or of many.

        With symmetric splits those of the observed rows given the held-out ones follow. From indices ``(..., members,
        n1)`` and ``(..., members, n2)`` to ``(..., members, outputs, n2)``; members may repeat the guide's.
        """
        ways = [split, Split(split.held_out, split.observed)] if self.symmetric_splits else [split]
        found = [self._one_way(way) for way in ways]
        return Marginals(*(torch.cat(values, dim=-1) for values in zip(*found, strict=True)))

    def _one_way(self, split: Split) -> Marginals:
        observed, held_out = (index.flatten(0, -2) for index in split)
        member = torch.arange(len(observed), device=observed.device) % len(self.gram)
        own = self.label_noise if self.likelihood is None or self.split_label_noise else None

        def some(part: slice) -> Marginals:
            chosen = Split(observed[part], held_out[part])
            return self._split_marginals(self.gram, self.targets, chosen, member[part], own)

        if self.gram.device.type == "cpu" and observed.shape[-1] >= _ROWS_APART:
            parts = thread_map(len(observed), lambda index: some(slice(index, index + 1)))
        else:
            parts = [some(slice(None))]
        shape = split.observed.shape[:-1]
        return Marginals(*(torch.cat(values).unflatten(0, shape) for values in zip(*parts, strict=True)))

    def bytes_per_split(self) -> int:
        """Peak memory that `posterior` takes for one split of all members."""
        members, matrices = self.scale.shape
        # Whole rows, K11 and K12, K11 with its noise, its factor, and the solution.
        half = self.targets.shape[-1] // 2 + 1
        return members * matrices * tensor_bytes(9, half, self.gram.shape[-1] // 2 + 1, dtype=self.gram.dtype)

    def _split_marginals(
        self,
        gram: Tensor,
        targets: Tensor,
        split: Split,
        member: Tensor,
        label_noise: Tensor | None = None,
        *,
        checked: bool = True,
    ) -> Marginals:
        """Marginals ``(k, outputs, n2)`` of k splits, ``member`` saying whose rows each is of.

        Normalised Gram matrices are ``(members, n, n)``, targets and the variances of labels ``(members, outputs, n)``.
        """
        n1, order = split.observed.shape[-1], torch.cat(split, dim=-1)
        # Whole rows first, then columns: twice as fast as entry by entry.
        place = split.observed + gram.shape[-1] * member.unsqueeze(-1)
        rows = gram.flatten(0, 1).index_select(0, place.flatten()).unflatten(0, place.shape)
        block = torch.gather(rows, -1, order.unsqueeze(-2).expand(-1, n1, -1))
        prior = torch.gather(gram.diagonal(dim1=-2, dim2=-1)[member], -1, split.held_out)

        def observed(values: Tensor) -> Tensor:
            return torch.take_along_dim(values[member], split.observed.unsqueeze(-2), dim=-1)

        scale = self.scale.to(gram)[member].unsqueeze(-1)
        noise = self.noise.to(gram)[member].unsqueeze(-1)
        if label_noise is not None:
            noise = noise + observed(label_noise)
        # The noise is divided by the scale, not the covariances multiplied by it: outputs may share a factor.
        solver = Solver.of(block[..., :n1].unsqueeze(-3), noise / scale, name=MATRIX_NAME, checked=checked)
        p = solver.marginals(block[..., n1:].unsqueeze(-3), prior.unsqueeze(-2), observed(targets))
        return Marginals(p.mean, scale * p.variance)

    @torch.no_grad()
    def with_rows(self, rows: Tensor) -> Guide:
        """The same guide with further rows behind the training rows, which splits may hold out without targets."""
        gram, normaliser = normalised_gram(self.kernel, rows, self.gram.dtype, copies=4)
        return replace(self, gram=gram * (normaliser / self.normaliser)[..., None, None])

    @torch.no_grad()
    def left_out(self) -> LeftOut:
        """What the guide alone, at its own best scale, predicts for each training row from the others' labels."""
        noise = self.noise.expand(self.targets.shape[:-1])
        mean, with_noise = self._alone().left_out(self.targets)
        variance = with_noise - self._own_label_noise() - noise.unsqueeze(-1)
        return LeftOut(Marginals(mean, floor_variance(variance, with_noise)), noise, self.targets.argmax(dim=-2))

    def predictor(self, rows: Tensor) -> ExactPosterior:
        """The guide as a model of its own, at its own best scale, conditioned on all rows ``(members, n, d)``."""
        members, outputs, n = self.targets.shape
        if self.likelihood is not None:
            require_memory(
                4 * members * tensor_bytes(outputs, n, n, dtype=self.gram.dtype),
                what=f"the guide's own predictions from {n} rows of {outputs} classes",
                remedy="Train on fewer rows; GDKLClassifier does without them with guide_share=0.",
                device=rows.device,
            )
        scale = (self.own_scale / self.normaliser.unsqueeze(-1)).expand(members, outputs).contiguous()
        noise = self.noise.expand(members, outputs).contiguous()
        kernel, own = ScaledKernel(self.kernel, scale), self._own_label_noise()
        return ExactPosterior.condition(kernel, rows, self.targets, noise, row_noise=own, name=MATRIX_NAME)

    def _own_label_noise(self) -> Tensor:
        """Variances that the labels carry in the guide's own predictions, ``(members, outputs, n)``."""
        if self.label_noise is None:
            return torch.zeros_like(self.targets)
        return self.label_noise * self.label_noise_factor[:, None, None]

    def _alone(self) -> Solver:
        """Of all training rows as the guide alone sees them."""
        K = self.own_scale[..., None, None] * self.gram.unsqueeze(-3)
        return Solver.of(K, self.noise.unsqueeze(-1) + self._own_label_noise(), name=MATRIX_NAME)

    def for_batches(self, *, label_noise: bool = False) -> Guide:
        """The same hyperparameters without the rows that they were chosen on: for `batch_posterior`.

        Without ``label_noise``, the labels' own variances, one factorisation serves all classes.
        """
        return replace(
            self,
            gram=self.gram[:, :0, :0].clone(),
            targets=self.targets[..., :0].clone(),
            label_noise=None,
            batch_label_noise=label_noise and self.likelihood is ClassLikelihood.DIRICHLET,
        )

    def read_targets(self, targets: Tensor, dtype: torch.dtype) -> LabelTargets:
        """Targets ``(outputs, b)`` of class numbers ``(b,)`` with their variances; numbers as they are, with none."""
        if self.likelihood is None:
            return LabelTargets(targets, torch.zeros_like(targets))
        return label_targets(targets, self.outputs, self.likelihood, dtype)

    @torch.no_grad()
    def batch_posterior(
        self, rows: Tensor, targets: Tensor, index: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> Marginals:
        """Latent marginals ``(1, outputs, b)`` of each half of a batch given the other, or as they were precomputed.

        From rows ``(b, d)``, the first half and the second, with targets ``(outputs, b)`` in the precision of the
        algebra or class numbers ``(b,)``, which have that of ``dtype``. What was precomputed is found by the positions
        of the rows in the training set, ``index``.
        """
        if self.table is not None:
            if index is None:
                raise OptionError("precomputed marginals need rows with known positions.")
            place = index.to(self.table.mean.device)
            dtype = dtype if self.likelihood is not None else self.table.mean.dtype
            return Marginals(*(value.index_select(-1, place)[None].to(dtype) for value in self.table))
        b = rows.shape[0]
        if b < 2 or b % 2:
            raise DataError(f"a batch is split into two equal halves: it needs an even number of rows; got {b}.")
        values, own = self.read_targets(targets, dtype)
        if self.source is not None:
            gram = self.source.gram(rows, index)
        else:
            # On a GPU without a look at the values, which every step would have to wait for.
            with unchecked() if rows.is_cuda else nullcontext():
                # A small noise needs the precision of the algebra; labels have noise enough.
                gram = self.kernel.gram(rows if self.likelihood is not None else rows.to(values))
        gram = gram.to(values) / self.normaliser.to(values)
        halves = torch.arange(b, device=gram.device).unflatten(0, (2, -1))
        # The first half is held out first.
        split, noise = Split(halves.flip(0), halves), own[None] if self.batch_label_noise else None
        p = self._split_marginals(gram[None], values[None], split, halves.new_zeros(2), noise, checked=False)
        return Marginals(*(torch.cat(tuple(value), dim=-1)[None] for value in p))

    @torch.no_grad()
    def precompute_marginals(
        self,
        take: Callable[[Tensor], tuple[Tensor, Tensor]],
        n: int,
        seed: int,
        dtype: torch.dtype = torch.float64,
    ) -> Guide:
        """The same guide with a table of its marginals on all training rows, each given a context without that row.

        The labels of a context carry their own variances. Without them thousands of rows make a guide sure of what
        single labels say where classes overlap, too.

        ``take`` gives the rows ``(k, d)`` at some of n positions, and their targets ``(outputs, k)`` or class numbers
        ``(k,)``; ``dtype`` is the precision of the algebra for class numbers.
        """
        if n < 1:
            raise OptionError("there are no rows to compute marginals of.")
        size = context_size(n, self.outputs)
        found: list[tuple[Tensor, Marginals]] = []
        for context, others in two_contexts(n, size, seed):
            rows, raw = take(context)
            y, own = self.read_targets(raw, dtype)
            normaliser, scale, noise = (value.to(y) for value in (self.normaliser, self.scale[0], self.noise[0]))
            # In the precision of the algebra: rounding in a lower one may outweigh a small noise.
            rows = rows.to(y)
            K = self.kernel.gram(rows) / normaliser
            solver = Solver.of(K, (noise[:, None] + own) / scale[:, None], name=MATRIX_NAME).prepared()
            chunk = rows_per_chunk(tensor_bytes(4 + 2 * self.outputs, size, dtype=y.dtype))
            for part in chunk_slices(len(others), chunk):
                new = take(others[part])[0].to(y)
                K12 = self.kernel.cross(new, rows).mT / normaliser
                p = solver.marginals(K12, self.kernel.diagonal(new) / normaliser, y)
                # Single precision is enough for what many classes and rows take.
                kept = torch.float32 if self.likelihood is not None else y.dtype
                found.append((others[part], Marginals(p.mean.to(kept), (scale[:, None] * p.variance).to(kept))))
        order = torch.cat([index for index, _ in found]).argsort()
        table = (torch.cat([p[i] for _, p in found], dim=-1) for i in range(2))
        return replace(self, table=Marginals(*(value.index_select(-1, order.to(value.device)) for value in table)))
