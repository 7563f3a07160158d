"""DUE: deep kernel learning whose network keeps distances, by spectral normalisation of every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gdkl.gp import ClassLikelihood
from gdkl.methods.dkl import fit_dkl
from gdkl.methods.dkl_classes import fit_dkl_classes
from gdkl.methods.sparse_dkl import fit_sparse_dkl, fit_sparse_dkl_classes
from gdkl.nets import SpectralNetwork, converge_norms
from gdkl.training import Batch, BatchSource, ClassData, FittedModel, StudentOptions, TrainingData


class SpectralLimit(NamedTuple):
    """How far layers are limited: their largest norm, and the power iterations of a training step."""

    coefficient: float
    power_iterations: int

    def of(self, options: StudentOptions) -> StudentOptions:
        """Options of a student with limited layers, whose norms are exact once it is trained."""
        build = options.feature_net
        return replace(options, feature_net=lambda d: SpectralNetwork(build(d), d, *self), finish=converge_norms)


def fit_due(data: TrainingData, options: StudentOptions, limit: SpectralLimit) -> FittedModel:
    """Train a deep kernel with limited layers by evidence."""
    return fit_dkl(data, limit.of(options))


def fit_due_classes(data: ClassData, options: StudentOptions, limit: SpectralLimit) -> FittedModel:
    """The same of labels, as `fit_dkl_classes`."""
    return fit_dkl_classes(data, limit.of(options))


def fit_sparse_due(
    source: BatchSource, outputs: int, options: StudentOptions, limit: SpectralLimit, *, held_out: Batch | None = None
) -> FittedModel:
    """The same with inducing points, as `fit_sparse_dkl`."""
    return fit_sparse_dkl(source, outputs, limit.of(options), held_out=held_out)


def fit_sparse_due_classes(
    source: BatchSource,
    n_classes: int,
    options: StudentOptions,
    limit: SpectralLimit,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    kl_weight: float = 1.0,
) -> FittedModel:
    """The same of labels with inducing points, as `fit_sparse_dkl_classes`."""
    return fit_sparse_dkl_classes(source, n_classes, limit.of(options), likelihood=likelihood, kl_weight=kl_weight)
