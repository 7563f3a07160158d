"""The paper's other baselines: DUE, DLVKL, and the network with a Gaussian head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from gdkl.estimators.base import EstimatorBase, Fit
from gdkl.estimators.classification import ClassifierBase
from gdkl.estimators.classifiers import StudentClassifier
from gdkl.estimators.options import NetworkOptions
from gdkl.estimators.plan import Plan
from gdkl.estimators.regression import RegressorBase
from gdkl.estimators.regressors import StudentRegressor
from gdkl.gp import ClassLikelihood
from gdkl.methods import (
    CodeOptions,
    SpectralLimit,
    fit_dlvkl,
    fit_dlvkl_classes,
    fit_due,
    fit_due_classes,
    fit_nn,
    fit_sparse_due,
    fit_sparse_due_classes,
)
from gdkl.numerics import OptionError
from gdkl.training import Batch, BatchSource, ClassData, FittedModel, TrainingData

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel


class DUERegressor(StudentRegressor):
    """DUE: deep kernel learning by evidence, with spectrally normalised layers that keep distances between rows.

    Its options are those of `DKLRegressor`, with as many steps. The default network is residual, d-100-100-100-100, and
    its layers have norms up to 0.95 (``Preset(spectral_coefficient=…, power_iterations=…)``). Linear layers,
    convolutions and batch norms of a ``feature_net`` are normalised, too; give it residual connections.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> DUERegressor(n_iter=20, random_state=0).fit(X, np.sin(X[:, 0])).predict(X).shape
        (40,)
    """

    _method: ClassVar[str] = "due"
    _has_sparse: ClassVar[bool] = True

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        if plan.preset.calibrate:
            raise OptionError("exact DUE has no calibrated noise: use inference='sparse', or Preset(calibrate=False).")
        return fit_due(data.repeat(plan.members), plan.options(data.n), _limit(plan))

    def _fit_sparse(self, source: BatchSource, outputs: int, held_out: Batch | None, plan: Plan) -> FittedModel:
        return fit_sparse_due(source, outputs, plan.options(source.rows), _limit(plan), held_out=held_out)


class DUEClassifier(StudentClassifier):
    """DUE of classes: deep kernel learning by evidence, with spectrally normalised layers.

    Its options are those of `DKLClassifier`. Layers have norms up to 3 on images, where the default network is a wide
    ResNet, and up to 0.95 on tables, as for `DUERegressor`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> DUEClassifier(n_iter=20, random_state=0).fit(X, y).predict(X).shape
        (150,)
    """

    _method: ClassVar[str] = "due"
    _has_sparse: ClassVar[bool] = True

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        if plan.preset.calibrate:
            return self._fit_twice(data, plan)
        return Fit(fit_due_classes(data.repeat(plan.members), plan.options(data.n), _limit(plan)))

    def _fit_sparse(self, source: BatchSource, n_classes: int, plan: Plan) -> Fit:
        weight = float(plan.preset.kl_weight)
        options, limit = plan.options(source.rows), _limit(plan)
        likelihood = self._likelihood
        return Fit(fit_sparse_due_classes(source, n_classes, options, limit, likelihood=likelihood, kl_weight=weight))


def _limit(plan: Plan) -> SpectralLimit:
    return SpectralLimit(float(plan.preset.spectral_coefficient), int(plan.preset.power_iterations))


@dataclass(kw_only=True, eq=False, repr=False)
class CodeStudentOptions(NetworkOptions):
    """What DLVKL takes: the options of DKL, but for the inference, which always has inducing points."""

    base_kernel: Kernel | None = None
    n_inducing: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class DLVKLRegressor(CodeStudentOptions, RegressorBase):
    """Deep latent-variable kernel learning: a stochastic encoder, and a Gaussian process over the codes it draws.

    Trained by an evidence bound with two KL terms, that of the codes from a prior around the principal components of
    the rows, and that of the inducing values (``Preset(code_weight=…, kl_weight=…)``). Predictions are a mixture over
    sixteen codes per row.

    Options are as for `DKLRegressor`; inference always has inducing points, 100 unless ``n_inducing`` says, and no
    more than rows. ``n_iter=None`` is 1000 steps.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> DLVKLRegressor(n_iter=20, random_state=0).fit(X, np.sin(X[:, 0])).predict(X).shape
        (40,)
    """

    _method: ClassVar[str] = "dlvkl"
    _has_sparse: ClassVar[bool] = True
    inference = "sparse"

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit to data, as `DKLRegressor`, but without weights of rows, which are for exact inference."""
        EstimatorBase.fit(self, X, y, **unsupported)
        return self

    def _fit_sparse(self, source: BatchSource, outputs: int, held_out: Batch | None, plan: Plan) -> FittedModel:
        if plan.preset.calibrate:
            raise OptionError("DLVKL has no calibrated noise: use Preset(calibrate=False).")
        return fit_dlvkl(source, outputs, plan.options(source.rows), _codes(plan))


@dataclass(kw_only=True, eq=False, repr=False)
class DLVKLClassifier(CodeStudentOptions, ClassifierBase):
    """Deep latent-variable kernel learning of classes, see `DLVKLRegressor`; of tables and of images.

    Args:
        likelihood: "softmax" over sampled latents; "dirichlet" for Gaussian targets by the Dirichlet transform, as the
            paper has it for few images.

    Other options are as for `DKLClassifier`; inference always has inducing points, 100 for tables and 200 for images
    unless ``n_inducing`` says, and no more than rows. ``n_iter=None`` is 1000 steps, 500 for images.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> DLVKLClassifier(n_iter=20, random_state=0).fit(X, y).predict(X).shape
        (150,)
    """

    _method: ClassVar[str] = "dlvkl"
    _has_sparse: ClassVar[bool] = True
    _likelihoods: ClassVar[tuple[str, ...]] = ("softmax", "dirichlet")
    inference = "sparse"

    likelihood: str = "softmax"
    augment: bool | str = False
    views: str = "plain"

    @property
    def _likelihood(self) -> ClassLikelihood:
        # Either way probabilities are a softmax over sampled latents.
        return ClassLikelihood.DIRICHLET

    def _fit_sparse(self, source: BatchSource, n_classes: int, plan: Plan) -> Fit:
        options, softmax = plan.options(source.rows), self.likelihood == "softmax"
        return Fit(fit_dlvkl_classes(source, n_classes, options, _codes(plan), softmax=softmax))


def _codes(plan: Plan) -> CodeOptions:
    preset = plan.preset
    return CodeOptions(int(preset.code_size), float(preset.code_weight), float(preset.kl_weight))


@dataclass(kw_only=True, eq=False, repr=False)
class NNRegressor(NetworkOptions, RegressorBase):
    """The network with a Gaussian head: a mean and a variance for each target, by the likelihood of all rows.

    With ``n_members=5`` a deep ensemble: predictions are the mixture of the networks. A single network has no
    uncertainty of its function, ``latent_variance`` is zero.

    Its options are those of `DKLRegressor` that a network has; ``feature_net`` gets a linear layer to both.
    ``n_iter=None`` is 500 steps: more overfit small tables, and targets with little noise need more.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> NNRegressor(n_iter=20, random_state=0).fit(X, np.sin(X[:, 0])).predict(X).shape
        (40,)
    """

    _method: ClassVar[str] = "nn"

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        if plan.preset.calibrate:
            raise OptionError("a network has no calibrated noise: use Preset(calibrate=False).")
        return cast(FittedModel, fit_nn(data.repeat(plan.members), plan.options(data.n)))
