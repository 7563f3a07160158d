"""BoTorch models: `GDKLModel` fits itself in a loop of Bayesian optimisation, `to_botorch` takes a fitted estimator.

Their posteriors are Gaussian, so that every acquisition function takes them: what an estimator believes is a mixture,
and a posterior has the mixture's mean and its covariance between rows, with gradients to the rows. Targets are in
their own units; under a warp, too, mean and covariance are those of the target and not of what it is warped to.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from gpytorch.constraints import Positive
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import GP
from linear_operator import to_linear_operator
from sklearn.base import clone
from torch import Tensor

from gdkl.estimators import GDKLRegressor
from gdkl.estimators.presets import Preset
from gdkl.estimators.regression import RegressorBase
from gdkl.integrations.mixture import Mixture
from gdkl.numerics import DataError, MissingPackageError, OptionError

try:
    from botorch.models.gpytorch import GPyTorchModel
    from botorch.models.model import FantasizeMixin
    from botorch.posteriors import GPyTorchPosterior
except ModuleNotFoundError as error:
    raise MissingPackageError("BoTorch is not installed: pip install 'gdkl[botorch]'.") from error

if TYPE_CHECKING:
    from botorch.acquisition.objective import PosteriorTransform
    from botorch.models.transforms.input import InputTransform
    from botorch.models.transforms.outcome import OutcomeTransform
    from botorch.posteriors import Posterior
    from botorch.utils.datasets import SupervisedDataset
    from gpytorch.mlls import MarginalLogLikelihood


__all__ = ["EstimatorModel", "GDKLModel", "default_estimator", "to_botorch"]


class EstimatorModel(GPyTorchModel, GP, FantasizeMixin):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A fitted regressor as a BoTorch model; `to_botorch` makes it."""

    def __init__(self, mixture: Mixture | None, num_outputs: int) -> None:
        super().__init__()
        self._num_outputs = num_outputs
        # GPyTorch's marginal log-likelihoods ask for one; it has the noise that was found.
        self.likelihood = _likelihood(num_outputs)
        self._mixture: Mixture | None = None
        if mixture is not None:
            self._adopt(mixture)

    @property
    def estimator(self) -> RegressorBase:
        """The fitted estimator."""
        return self._fitted().estimator

    @property
    def num_outputs(self) -> int:
        """Outputs, which are independent of each other."""
        return self._num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """Sets of observations that the model was conditioned on, such as fantasies; empty for none."""
        return torch.Size() if self._mixture is None else self._mixture.batch_shape

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The distribution of the function at rows ``(..., q, d)`` that have passed the input transform."""
        return self._distribution(X, False)

    def posterior(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """A Gaussian with the mixture's mean and covariance at rows ``(..., q, d)``, jointly over q.

        Args:
            X: Rows; gradients flow to them.
            output_indices: Outputs that are wanted; None for all.
            observation_noise: Whether of new observations rather than of the function; or their noise variances,
                ``(..., q, outputs)``.
            posterior_transform: Applied last.
        """
        self._fitted()
        if output_indices is not None:
            return self.subset_output(output_indices).posterior(X, None, observation_noise, posterior_transform)
        self.eval()
        rows = self.transform_inputs(X)
        posterior: Any = GPyTorchPosterior(self._distribution(rows, observation_noise))
        transform = self._outcomes()
        if transform is not None:
            posterior = transform.untransform_posterior(posterior, X=rows)
        return posterior if posterior_transform is None else posterior_transform(posterior, X=rows)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """The model given further observations; hyperparameters and weights stay as they were fitted.

        Args:
            X: Rows ``(..., n, d)``.
            Y: Observations ``(..., n, outputs)``; leading dimensions, such as those of fantasies, broadcast.
            noise: Their noise variances, of the shape of ``Y``, where there is an outcome transform those of its
                results; None for the noise of the fit.
            **kwargs: Ignored.
        """
        mixture = self._fitted()
        self.eval()
        rows, transform = self.transform_inputs(X), self._outcomes()
        if Y.ndim < 2 or Y.shape[-1] != self.num_outputs or Y.shape[-2] != rows.shape[-2]:
            expected = f"(..., {rows.shape[-2]}, {self.num_outputs})"
            raise DataError(f"Y has shape {tuple(Y.shape)}: give {expected}, rows and outputs.")
        targets = Y if transform is None else transform(Y, X=rows)[0]
        found = self._copy()
        found._mixture = mixture.condition(rows, targets, None if noise is None else noise.expand(Y.shape))
        found._append(X, rows, targets)
        return found

    def subset_output(self, idcs: list[int]) -> Self:
        """The model of some of the outputs."""
        mixture, found = self._fitted().subset(idcs), self._copy()
        found._num_outputs = len(idcs)
        found._modules = dict(self._modules)
        found.likelihood = _likelihood(len(idcs))
        transform = self._outcomes()
        if transform is not None:
            found.outcome_transform = transform.subset_output(idcs)
        found._adopt(mixture)
        return found

    def _outcomes(self) -> Any:
        """The outcome transform, if there is one."""
        return getattr(self, "outcome_transform", None)

    def _fitted(self) -> Mixture:
        if self._mixture is None:
            raise OptionError("the model has nothing to predict from: make it by to_botorch(fitted_estimator).")
        return self._mixture

    def _adopt(self, mixture: Mixture) -> None:
        """Take over what was fitted."""
        self._mixture = mixture
        noise = torch.atleast_1d(torch.as_tensor(mixture.estimator.noise_))[list(mixture.outputs)]
        self.likelihood.noise = (noise + mixture.known_noise).reshape(self.likelihood.noise.shape)

    def _append(self, original: Tensor, X: Tensor, Y: Tensor) -> None:
        """Remember observations beside the training data, where these are known."""

    def _copy(self) -> Self:
        """A model that changes without this one; what was fitted is shared."""
        found = copy(self)
        found._modules = dict(self._modules)
        return found

    def _distribution(self, X: Tensor, observation_noise: bool | Tensor) -> MultivariateNormal:
        """Of one output, or of several that are independent."""
        mixture = self._fitted()
        if X.ndim < 2 or X.shape[-1] != mixture.columns:
            raise DataError(f"X has shape {tuple(X.shape)}: give (..., q, {mixture.columns}) as the model was fitted.")
        mean, covariance = mixture.moments(X, noisy=observation_noise is True)
        if isinstance(observation_noise, Tensor):
            covariance = covariance + torch.diag_embed(observation_noise.mT.to(mean).expand(mean.shape))
        mean, covariance = mean.to(X), covariance.to(X)
        single = [
            MultivariateNormal(mean[..., k, :], to_linear_operator(covariance[..., k, :, :]))
            for k in range(self.num_outputs)
        ]
        return single[0] if len(single) == 1 else MultitaskMultivariateNormal.from_independent_mvns(single)


class GDKLModel(EstimatorModel):
    """A BoTorch model that fits itself: by ``fit_gpytorch_mll``, in Ax, or at the first question.

    Targets and columns are scaled inside, so that neither ``Standardize`` nor ``Normalize`` is needed; both may be
    given, as to BoTorch's own models. One row and constant targets are enough to begin with.

    Args:
        train_X: Rows ``(n, d)``.
        train_Y: Targets ``(n, outputs)``, to be maximised by most acquisition functions.
        train_Yvar: Known noise variances of the targets, beside which the fit finds the noise that all share; for one
            output.
        estimator: Another regressor of gdkl than the default, such as ``NNGPRegressor(relevance=True)``; with a
            ``warp`` the posterior is the Gaussian with mean and covariance of the unwarped targets.
        input_transform: Applied to all rows.
        outcome_transform: Applied to the targets, and undone in posteriors.

    Example:
        >>> X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
        >>> model = GDKLModel(X, torch.sin(6 * X))
        >>> model.posterior(X[:2]).mean.shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        estimator: RegressorBase | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        if train_X.ndim != 2:
            raise DataError(f"train_X has shape {tuple(train_X.shape)}: give (n, d), and make one model per batch.")
        self._validate_tensor_args(X=train_X, Y=train_Y, Yvar=train_Yvar)
        if estimator is not None and not isinstance(estimator, RegressorBase):
            raise OptionError(f"estimator={estimator!r} is no regressor of gdkl: pass GDKLRegressor() or another one.")
        if train_Yvar is not None and train_Y.shape[-1] > 1:
            raise OptionError("train_Yvar is for one output: make a model per output, and a ModelListGP of them.")
        super().__init__(None, train_Y.shape[-1])
        #: What is fitted.
        self.unfitted = default_estimator() if estimator is None else estimator
        self.train_inputs = (train_X,)
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform.train()
            with torch.no_grad():
                train_Y, train_Yvar = outcome_transform(train_Y, train_Yvar, X=self.transform_inputs(train_X))
        self._restore_targets_and_noise(train_Y, train_Yvar, strict=True)
        self.to(train_X)

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """Arguments of the constructor from a dataset of BoTorch's; Ax calls this with its model options, too."""
        return {**super().construct_inputs(training_data), **options}

    def custom_fit(self, mll: MarginalLogLikelihood | None = None, **kwargs: Any) -> Any:
        """Fit the estimator; ``fit_gpytorch_mll`` calls this.

        Args:
            mll: A marginal log-likelihood of this model, which is returned.
            **kwargs: Ignored: closures and optimisers of GPyTorch's fits.
        """
        self.train()
        Y, Yvar = self._extract_targets_and_noise()
        with torch.no_grad():
            X = self.transform_inputs(self.train_inputs[0])
        y = Y[:, 0] if self.num_outputs == 1 else Y
        known = None if Yvar is None else Yvar[:, 0]
        # Arrays: what BoTorch does in inference mode, with other threads or on other devices stays outside of the fit.
        rows, y, known = (None if part is None else part.detach().double().cpu().numpy() for part in (X, y, known))
        estimator = cast(RegressorBase, clone(self.unfitted)).fit(rows, y, noise_var=known)
        mixture = Mixture.of(estimator)
        self._adopt(mixture if Yvar is None else mixture.with_known_noise(float(Yvar.mean())))
        self.eval()
        return None if mll is None else mll.eval()

    def set_train_data(self, inputs: Tensor | None = None, targets: Tensor | None = None, strict: bool = True) -> None:
        """Replace the training data; with other targets the model is fitted anew at the next question."""
        if inputs is not None:
            self.train_inputs = (inputs,)
        if targets is not None:
            self.train_targets, self._mixture = targets, None

    def subset_output(self, idcs: list[int]) -> Self:
        """The model of some of the outputs."""
        found = super().subset_output(idcs)
        found.train_targets = found._as_train_targets(self._extract_targets_and_noise()[0][..., idcs])
        return found

    def _fitted(self) -> Mixture:
        if self._mixture is None:
            self.custom_fit()
        return super()._fitted()

    def _append(self, original: Tensor, X: Tensor, Y: Tensor) -> None:
        batch = torch.broadcast_shapes(self.batch_shape, X.shape[:-2], self.train_inputs[0].shape[:-2])

        def joined(known: Tensor, new: Tensor) -> Tensor:
            return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in (known, new)], dim=-2).detach()

        targets, _ = self._extract_targets_and_noise()
        self.train_inputs = (joined(self.train_inputs[0], X),)
        if self._original_train_inputs is not None:
            self._original_train_inputs = joined(self._original_train_inputs, original)
        self.train_targets = self._as_train_targets(joined(targets, Y))

    def _as_train_targets(self, Y: Tensor) -> Tensor:
        """Targets ``(..., n, outputs)`` in BoTorch's order."""
        return Y.squeeze(-1) if self.num_outputs == 1 else Y.mT

    def _extract_targets_and_noise(self) -> tuple[Tensor, Tensor | None]:
        Y = self.train_targets.unsqueeze(-1) if self.num_outputs == 1 else self.train_targets.mT
        return Y, self.train_Yvar

    def _restore_targets_and_noise(self, Y: Tensor, Yvar: Tensor | None, strict: bool) -> None:
        self.train_targets, self.train_Yvar, self._mixture = self._as_train_targets(Y), Yvar, None


def default_estimator() -> GDKLRegressor:
    """What `GDKLModel` fits: targets are taken to be nearly exact; the seed makes two fits to the same rows equal."""
    return GDKLRegressor(warp=None, preset=Preset(little_noise=True), random_state=0)


def to_botorch(estimator: RegressorBase) -> EstimatorModel:
    """A fitted regressor of gdkl as a BoTorch model.

    Args:
        estimator: Fitted with exact inference to a table of numbers. With a warp of the target, posteriors are the
            Gaussians with mean and covariance of the unwarped targets.

    Example:
        >>> from gdkl import NNGPRegressor
        >>> X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
        >>> model = to_botorch(NNGPRegressor().fit(X, torch.sin(6 * X[:, 0])))
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """
    mixture = Mixture.of(estimator)
    return EstimatorModel(mixture, len(mixture.outputs))


def _likelihood(outputs: int) -> GaussianLikelihood:
    return GaussianLikelihood(noise_constraint=Positive(), batch_shape=torch.Size([outputs] if outputs > 1 else [])).to(
        torch.float64
    )
