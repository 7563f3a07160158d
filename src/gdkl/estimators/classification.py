"""The scikit-learn face that all classifiers share: tables or images in, the labels given and probabilities out."""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from torch import Tensor

from gdkl.calibration import (
    PRIOR_DEVIATION,
    best_temperature,
    held_out_count,
    hold_out_stratified,
    mix_classes,
)
from gdkl.estimators.base import AnyModel, EstimatorBase, Fit, Source, to_numpy
from gdkl.estimators.checks import check_predictions
from gdkl.estimators.describe import stack_relevance
from gdkl.estimators.intervals import as_given
from gdkl.estimators.kinds import AUTO, ImageKind, Kind, TableKind, check_views
from gdkl.estimators.loader_source import LoaderSource, read_loader
from gdkl.estimators.loaders import FirstPass, is_stream, refuse_malformed_batches
from gdkl.estimators.plan import Plan
from gdkl.estimators.sources import ArraySource
from gdkl.gp import PREDICTION_SAMPLES, ClassLikelihood, LeftOut, base_samples, class_log_probs
from gdkl.inputs import (
    MIN_ROWS,
    FloatArray,
    ImageInput,
    TableEncoder,
    TableInput,
    check_labels,
    check_row_count,
    check_rows,
    is_image_batch,
    refuse_channels_last,
)
from gdkl.inputs.checks import on_cpu
from gdkl.methods import STUDENT
from gdkl.numerics import DataError, OptionError
from gdkl.predictive import ClassPredictive
from gdkl.training import Batch, BatchSource, ClassData, FittedModel, Stack

if TYPE_CHECKING:
    import pandas as pd

#: Fewer rows than this spare none for a temperature with inducing points.
_ROWS_FOR_TEMPERATURE = 1000


class ClassifierBase(ClassifierMixin, EstimatorBase):
    """Fit, predict, score, save. Subclasses say how a model is trained.

    Attributes after ``fit``:
        classes_: The labels, sorted.
        history_: DataFrame, one row per logged step.
        n_iter_: Steps done.
        temperature_: What log probabilities are divided by; 1 without calibration.
        weights_: Of the models that predictions are a mixture of, a Series by name.
        guide_share_: What guides have of the weights.
        relevance_: Where guides have relevances, one number per column of X, 0 for a constant one: an array, or a
            DataFrame where columns have names.
        image_shape_: Channels, height and width; None for tables.
        n_features_in_, feature_names_in_: As everywhere in scikit-learn; for images channels · height · width.
    """

    #: What ``likelihood`` may be.
    _likelihoods: ClassVar[tuple[str, ...]] = tuple(ClassLikelihood)

    likelihood: str = "dirichlet"
    views: str

    kind_: Kind
    classes_: NDArray[Any]
    temperature_: float
    stack_: Stack
    weights_: pd.Series
    guide_share_: float
    relevance_: FloatArray | pd.DataFrame
    sampling_seed_: int

    @property
    def image_shape_(self) -> tuple[int, ...] | None:
        """Channels, height and width; None for tables."""
        return self.kind_.input.image_shape

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        """Train on all rows at once."""
        raise OptionError(f"{type(self).__name__} has no exact inference: use inference='sparse'.")

    def _fit_sparse(self, source: BatchSource, n_classes: int, plan: Plan) -> Fit:
        """Train on mini-batches; for estimators with inducing points."""
        raise OptionError(f"{type(self).__name__} has no inference with inducing points: use inference='exact'.")

    def _is_classifier(self) -> int:
        return 2

    @property
    def _likelihood(self) -> ClassLikelihood:
        return ClassLikelihood.DIRICHLET if self.likelihood == AUTO else ClassLikelihood(self.likelihood)

    def _check_options(self) -> None:
        super()._check_options()
        if self.likelihood not in self._likelihoods:
            raise OptionError(
                f"likelihood={self.likelihood!r} is not known: use one of {', '.join(self._likelihoods)}."
            )
        check_views(self.views)

    def _read(self, X: Any, y: Any, seed: int, calibrate: bool) -> Source:
        if is_stream(X, y):
            return self._read_loader(X, y, seed)
        refuse_malformed_batches(X, y)
        if is_image_batch(X):
            rows = on_cpu(X)
            check_row_count(len(rows))
            self.kind_ = ImageKind(ImageInput.fit(rows))
            self._remember_columns(rows.shape[1:])
        else:
            encoder = TableEncoder.fit(X)
            rows = check_rows(self, X, reset=True, encoder=encoder)
            check_row_count(len(rows))
            self.kind_ = TableKind(TableInput.fit([rows], encoder))
        self.kind_.check_views(self.views)
        self.classes_, labels = check_labels(self, y, len(rows))
        self.sampling_seed_ = seed
        return ArraySource(self.kind_, rows, labels, len(self.classes_), labels)

    def _read_loader(self, X: Any, y: Any, seed: int) -> Source:
        if not self._has_sparse:
            raise OptionError(
                f"{type(self).__name__} cannot be fitted to a Dataset or DataLoader: pass arrays, or use "
                "GDKLClassifier."
            )
        if y is not None:
            raise DataError("a Dataset or DataLoader yields its own labels: call fit(loader) without y.")
        fingerprint = self._user_checkpoint() is not None
        # A class may have a few rows only, which a loader does not tell before it is gone through: none is held out.
        read = read_loader(X, self._batch_option(), seed, labels=True, hold_out=False, fingerprint=fingerprint)
        first = read.first
        if first.classes is None or len(first.classes) < 2:
            raise DataError("the loader yields one class only: a classifier needs rows of at least two classes.")
        self.classes_, self.sampling_seed_ = first.classes, seed
        self.kind_ = self._loader_kind(first)
        self._remember_columns(first.row_shape)
        self.kind_.check_views(self.views)
        return LoaderSource(self.kind_, len(first.classes), read.loader, first, self._class_numbers, None, None)

    def _loader_kind(self, first: FirstPass) -> Kind:
        if len(first.row_shape) == 1:
            return TableKind(TableInput.from_moments(first.x_moments))
        refuse_channels_last(first.row_shape)
        integers = first.X.dtype.kind in "iub"
        return ImageKind(ImageInput.from_moments(first.x_moments, first.row_shape, integers, *first.x_range))

    def _class_numbers(self, y: NDArray[Any]) -> NDArray[Any]:
        index = np.searchsorted(self.classes_, y)
        if not bool((self.classes_[np.minimum(index, len(self.classes_) - 1)] == y).all()):
            raise DataError("the loader yields labels that were not there when it was first gone through.")
        return index

    def _remember_columns(self, shape: tuple[int, ...]) -> None:
        self.n_features_in_ = prod(shape)
        vars(self).pop("feature_names_in_", None)

    def _train(self, source: Source, plan: Plan) -> Fit:
        try:
            if not plan.exact:
                calibrated = plan.preset.calibrate and source.rows >= _ROWS_FOR_TEMPERATURE
                batches, held_out = source.batches(plan, held_out_count(source.rows) if calibrated else 0)
                fit = self._fit_sparse(batches, source.outputs, plan)
                return fit if held_out is None else self._with_temperature(fit, held_out)
            rows, labels = cast(ArraySource, source).tensors(plan)
            data = ClassData.make(rows[None], labels[None], source.outputs, self._likelihood, plan.algebra)
            return self._fit_exact(data, plan)
        except DataError as error:
            if not str(error).startswith("feature_net failed"):
                raise
            raise DataError(source.kind.network_error(str(error))) from error

    def _fit_twice(self, data: ClassData, plan: Plan) -> Fit:
        """Fit to four fifths of the rows for a temperature, then to all; an interrupted trial is all there is."""
        holdout = hold_out_stratified(to_numpy(data.labels[0]).astype(np.int64), plan.seed)
        if len(holdout.used) < MIN_ROWS:
            raise DataError(
                f"calibration holds out a fifth of each class, one row at least, which leaves {len(holdout.used)} of "
                f"{data.n} rows to learn from: give more rows, or use Preset(calibrate=False)."
            )
        without = replace(plan, preset=replace(plan.preset, calibrate=False))
        held_out, used = (index.to(data.rows.device) for index in holdout)
        trial = self._fit_exact(data.take(used), without)
        trial = self._with_temperature(trial, Batch(data.rows[0, held_out], data.labels[0, held_out]))
        if interrupted := interrupted_trial(trial):
            return interrupted
        return self._fit_exact(data, without)._replace(temperature=trial.temperature)

    def _with_temperature(self, fit: Fit, held_out: Batch) -> Fit:
        """The temperature that suits labels which the model has not learned."""
        log_probs = self._log_probs(fit, held_out.rows[None], self.sampling_seed_)[0]
        temperature = best_temperature(log_probs, held_out.targets, deviation=PRIOR_DEVIATION)
        return fit._replace(temperature=temperature)

    def _left_out_temperature(self, left_out: LeftOut, seed: int) -> float:
        """The temperature that suits each training row's label, predicted from all others."""
        latents, noise, labels = left_out
        base = base_samples(PREDICTION_SAMPLES, latents.mean.shape[1], seed)
        log_probs = _mixture(class_log_probs(latents, self._likelihood, noise.to(latents.mean), base))[0]
        return best_temperature(log_probs, labels[0], deviation=PRIOR_DEVIATION)

    def _adopt(self, fit: Fit) -> None:
        import pandas as pd  # noqa: PLC0415  (slow to import)

        self._adopt_history(fit.model)
        self.temperature_ = fit.temperature
        self.stack_ = _as_stack(fit)
        self.weights_ = pd.Series(to_numpy(self.stack_.weights[:, 0]), list(self.stack_.models))
        self.guide_share_ = float(self.weights_.drop(STUDENT).sum())
        vars(self).pop("relevance_", None)
        if isinstance(self.kind_, TableKind):
            relevance = stack_relevance(self.stack_, self.kind_.input, vars(self).get("feature_names_in_"))
            if relevance is not None:
                self.relevance_ = relevance
        rows, guide_rows = self.kind_.rows_at_a_time(_example_of(fit.model).device)
        for model in self.stack_.models.values():
            model.most_rows = rows if model is fit.model else guide_rows

    def _log_probs(self, fit: Fit, rows: Tensor, seed: int) -> Tensor:
        """Log probabilities of the whole mixture, ``(1, classes, m)``."""
        return self._mixed(_as_stack(fit), fit.model, self._member_log_probs(fit.model, rows, seed)[0], rows, seed)

    def _mixed(self, stack: Stack, student: AnyModel, members: Tensor, rows: Tensor, seed: int) -> Tensor:
        """Log of the weighted mean of all models' probabilities, given those of the student's members."""
        own = _mixture(members)
        parts = [
            own if model is student else _mixture(self._member_log_probs(model, rows, seed)[0]).to(own)
            for model in stack.models.values()
        ]
        temperatures = torch.ones(len(parts)) if stack.temperatures is None else stack.temperatures
        return mix_classes(torch.cat(parts), stack.weights[:, 0], temperatures)[None]

    def _member_log_probs(self, model: AnyModel, rows: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Each member's log probabilities, and means and variances of its latent functions."""
        latents = model.marginals(rows)
        base = base_samples(PREDICTION_SAMPLES, latents.mean.shape[1], seed)
        log_probs = class_log_probs(latents, self._likelihood, model.noise.to(latents.mean), base)
        return log_probs, latents.mean, latents.variance

    def predict_distribution(self, X: Any) -> ClassPredictive:
        """The whole predictive distribution at new rows or images: probabilities and the latent functions.

        Where guides have a share of the probabilities (`GDKLClassifier`), the latent functions are the student's alone.
        """
        self._require_fitted()
        wholes: list[Tensor] = []
        latents: list[tuple[Tensor, Tensor]] = []
        for rows in self._scaled_views(X):
            log_probs, mean, variance = self._member_log_probs(self.model_, rows, self.sampling_seed_)
            wholes.append(self._mixed(self.stack_, self.model_, log_probs, rows, self.sampling_seed_))
            latents.append((mean, variance))
        mean, variance = (torch.cat(part) for part in zip(*latents, strict=True))
        check_predictions(*(to_numpy(part) for part in (mean, variance, *wholes)))
        # Law of total variance over the members and views.
        total = variance.mean(dim=0) + mean.var(dim=0, correction=0)
        return ClassPredictive(
            to_numpy(_mixture(torch.cat(wholes))[0]).T / self.temperature_,
            self.classes_,
            to_numpy(mean.mean(dim=0)).T,
            to_numpy(total).T,
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, ``(m, classes)``, columns in the order of ``classes_``; of a tensor a tensor."""
        return as_given(X, self.predict_distribution(X).probs)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probability of each class, ``(m, classes)``; of a tensor a tensor."""
        return as_given(X, self.predict_distribution(X).log_probs)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        return self.predict_distribution(X).mode

    def _scaled_views(self, X: Any) -> list[Tensor]:
        """Scaled rows ``(1, m, d)``; of images, one such tensor for each view that predictions are averaged over."""
        like = _example_of(self.model_)
        return [torch.as_tensor(rows).to(like).unsqueeze(0) for rows in self.kind_.views(self, X, self.views)]


def _example_of(model: AnyModel) -> Tensor:
    """A tensor on the model's device, in the precision that it takes rows in."""
    parameter = next((value for value in model.embed.parameters() if value.is_floating_point()), None)
    return cast(FittedModel, model).posterior.features if parameter is None else parameter


def _as_stack(fit: Fit) -> Stack:
    """The stack of a fit; of a single model with all weight."""
    if fit.stack is not None:
        return fit.stack
    # A network with a head has no posterior, and is a model all the same.
    return Stack({STUDENT: cast(FittedModel, fit.model)}, torch.ones(1, 1, dtype=torch.float64))


def _mixture(log_probs: Tensor) -> Tensor:
    """Log of the mean of the members' probabilities, kept as a batch of one."""
    return torch.logsumexp(log_probs, dim=0, keepdim=True) - math.log(len(log_probs))


def interrupted_trial(fit: Fit, finished: Fit | None = None) -> Fit | None:
    """A trial fit as the result, if the user interrupted it: then nothing is trained after it.

    Args:
        fit: What was being fitted.
        finished: A trial that was finished before; it is used rather than half of another.
    """
    outcome = fit.model.outcome
    if outcome is None or not outcome.interrupted:
        return None
    chosen = fit if finished is None else finished
    chosen.model.outcome = replace(chosen.model.outcome or outcome, interrupted=True, trial=True)
    return chosen
