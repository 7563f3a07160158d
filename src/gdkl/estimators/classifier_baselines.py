"""The classifiers that GDKL is compared with: the same deep kernel, its guide and its network, each alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from gpytorch.kernels import Kernel

from gdkl.estimators.classifier_base import check_likelihood
from gdkl.estimators.guided_classifier import GuidedClassifier
from gdkl.estimators.parts import FeatureNet
from gdkl.estimators.sparse_classes import class_subset
from gdkl.estimators.student_classifier import StudentClassifier, check_augment
from gdkl.gp import ExactPosterior, leave_one_out
from gdkl.guide import GuideKernel
from gdkl.methods import (
    ClassData,
    FittedModel,
    FittedNetwork,
    fit_dkl_classes,
    fit_nn_classes,
    fit_nngp_classes,
    fit_sparse_dkl_classes,
)
from gdkl.training import BatchSource, Callback, StepReport


class DKLClassifier(StudentClassifier):
    """Deep kernel learning of classes by evidence: the classic, which overfits small data. For comparison.

    Args:
        n_iter: Gradient steps on all rows.
        likelihood: As for `GDKLClassifier`.
        feature_net: As for `GDKLClassifier`.
        base_kernel: As for `GDKLClassifier`.
        inference: As for `GDKLClassifier`.
        n_inducing: As for `GDKLClassifier`.
        batch_size: As for `GDKLClassifier`.
        n_members: As for `GDKLClassifier`.
        calibrate: "loo", "temperature" or None as for `GDKLClassifier`; None by default, as published. "loo" is by the
            model's own predictions, whose features have seen every label.
        augment: Crops and mirror images, as for images in `GDKLClassifier`; False by default.
        views: As for `GDKLClassifier`.
        tol: As for `GDKLClassifier`.
        patience: As for `GDKLClassifier`.
        optimizer: As for `GDKLClassifier`.
        momentum: As for `GDKLClassifier`.
        learning_rate: As for `GDKLClassifier`.
        weight_decay: On the network's weights; the paper's value by default.
        device: As for `GDKLClassifier`.
        dtype: As for `GDKLClassifier`.
        random_state: As for `GDKLClassifier`.
        verbose: As for `GDKLClassifier`.
        callbacks: As for `GDKLClassifier`.
        checkpoint_dir: As for `GDKLClassifier`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> DKLClassifier(n_iter=20, random_state=0).fit(X, y).predict(X).shape
        (150,)
    """

    def __init__(
        self,
        *,
        n_iter: int = 500,
        likelihood: str = "dirichlet",
        feature_net: FeatureNet = None,
        base_kernel: Kernel | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        batch_size: int | None = None,
        n_members: int = 1,
        calibrate: str | None = None,
        augment: bool | str = False,
        views: str = "plain",
        tol: float | None = None,
        patience: int | None = None,
        optimizer: str = "auto",
        momentum: float = 0.9,
        learning_rate: float = 1e-2,
        weight_decay: float = 5e-4,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ):
        self.n_iter = n_iter
        self.likelihood = likelihood
        self.feature_net = feature_net
        self.base_kernel = base_kernel
        self.inference = inference
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.n_members = n_members
        self.calibrate = calibrate
        self.augment = augment
        self.views = views
        self.tol = tol
        self.patience = patience
        self.optimizer = optimizer
        self.momentum = momentum
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint_dir = checkpoint_dir

    def _fit_model(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        if (batches := self._in_batches(data, seed, guided=False)) is not None:
            return replace(self._fit_sparse(batches[0], data.outputs, seed, callbacks), held_out=batches[1])
        data = data.repeat(self.n_members)
        model = fit_dkl_classes(data, self._student_options(data, seed, callbacks))
        if self.calibrate == "loo" and isinstance(model.posterior, ExactPosterior):
            posterior = model.posterior
            model.left_out = leave_one_out(posterior.factor, data.label_targets, posterior.noise)
        return model

    def _check_options(self) -> None:
        super()._check_options()
        check_augment(self.augment)

    def _fit_sparse(self, source: BatchSource, n_classes: int, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        self._refuse_to_alter_a_loader(source)
        subset = class_subset(source, n_classes, self._likelihood, self._precisions()[1], seed)
        options = self._sparse_student(subset, source, seed, callbacks)
        return fit_sparse_dkl_classes(source, n_classes, options, likelihood=self._likelihood)


class NNGPClassifier(GuidedClassifier):
    """The guide alone: one Gaussian process a class with the kernel of an infinitely wide network.

    Args:
        likelihood: As for `GDKLClassifier`.
        guide: As for `GDKLClassifier`.
        calibrate: "loo", "temperature" or None as for `GDKLClassifier`; None by default, as published.
        views: As for `GDKLClassifier`.
        device: As for `GDKLClassifier`.
        dtype: As for `GDKLClassifier`.
        random_state: Seed of the splits that the scale is chosen by, and of the sampled latents.
        verbose: Accepted for uniformity; there is no loop to show.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> bool(NNGPClassifier(random_state=0).fit(X, y).score(X, y) > 0.9)
        True
    """

    def __init__(
        self,
        *,
        likelihood: str = "dirichlet",
        guide: GuideKernel | str | None = None,
        calibrate: str | None = None,
        views: str = "plain",
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.likelihood = likelihood
        self.guide = guide
        self.calibrate = calibrate
        self.views = views
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self) -> None:
        check_likelihood(self.likelihood)
        self._check_guide()

    def _fit_model(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        guide = self._fit_guide(data, seed)
        model = fit_nngp_classes(data, guide)
        if self.calibrate == "loo":
            model.left_out = guide.left_out()
        return model


class NNClassifier(StudentClassifier):
    """The same network with a softmax head, trained on the cross-entropy of all rows. For comparison.

    Args:
        n_iter: Gradient steps on all rows.
        feature_net: As for `GDKLClassifier`; a linear layer from its features to the classes is added.
        n_members: As for `GDKLClassifier`.
        calibrate: "temperature" as for `GDKLClassifier`, or None.
        augment: Crops and mirror images, as for images in `GDKLClassifier`; False by default.
        views: As for `GDKLClassifier`.
        tol: As for `GDKLClassifier`.
        patience: As for `GDKLClassifier`.
        optimizer: As for `GDKLClassifier`.
        momentum: As for `GDKLClassifier`.
        learning_rate: As for `GDKLClassifier`.
        weight_decay: On all weights; the paper's value by default.
        device: As for `GDKLClassifier`.
        dtype: As for `GDKLClassifier`.
        random_state: Seed of the weights.
        verbose: As for `GDKLClassifier`.
        callbacks: As for `GDKLClassifier`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> NNClassifier(n_iter=50, random_state=0).fit(X, y).predict_proba(X).shape
        (150, 3)
    """

    _calibrations: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(
        self,
        *,
        n_iter: int = 500,
        feature_net: FeatureNet = None,
        n_members: int = 1,
        calibrate: str | None = None,
        augment: bool | str = False,
        views: str = "plain",
        tol: float | None = None,
        patience: int | None = None,
        optimizer: str = "auto",
        momentum: float = 0.9,
        learning_rate: float = 1e-2,
        weight_decay: float = 5e-4,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None = None,
    ):
        self.n_iter = n_iter
        self.feature_net = feature_net
        self.n_members = n_members
        self.calibrate = calibrate
        self.augment = augment
        self.views = views
        self.tol = tol
        self.patience = patience
        self.optimizer = optimizer
        self.momentum = momentum
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_options(self) -> None:
        super()._check_options()
        check_augment(self.augment)

    def _fit_model(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> FittedNetwork:
        self._refuse_to_alter_a_table()
        return fit_nn_classes(data.repeat(self.n_members), self._student_options(data, seed, callbacks))
