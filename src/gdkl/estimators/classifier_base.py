"""The scikit-learn face that all classifiers share: scaled inputs on the way in, the labels given on the way out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from torch import Tensor

from gdkl.estimators.batch_lists import is_stream, refuse_malformed_batches
from gdkl.estimators.class_inputs import (
    ImageScaler,
    TableScaler,
    check_labels,
    is_image_batch,
    read_images,
    read_table,
)
from gdkl.estimators.common import EstimatorBase, draw_seed, to_numpy
from gdkl.estimators.loaders import as_loader, first_pass
from gdkl.estimators.passes import SeededPasses
from gdkl.estimators.resuming import digest
from gdkl.estimators.sparse_classes import class_loader, read_class_loader
from gdkl.estimators.student import sparse_precisions
from gdkl.estimators.temperature import best_temperature
from gdkl.estimators.validation import MIN_ROWS, check_number, check_row_count, refuse_fit_options
from gdkl.gp import ClassLikelihood, LeftOut, base_samples, class_log_probs
from gdkl.methods import ClassData, FittedModel, FittedNetwork
from gdkl.nets import images_at_a_time
from gdkl.numerics import DataError, OptionError, resolve_device, resolve_dtype
from gdkl.predictive import ClassPredictive, FloatArray, Views, image_views
from gdkl.training import BatchSource, Callback

#: Latents sampled for a prediction.
PREDICTION_SAMPLES = 1024
#: Images that a guide is asked about at a time.
_IMAGES_AT_A_TIME = 512
#: Part of each class's rows that a temperature is fitted on.
_HELD_OUT = 0.2
#: How far from one a temperature is expected to be: the deviation of its logarithm. A dozen held-out rows that are all
#: labelled rightly would otherwise make every prediction certain, and the first wrong one endlessly so.
_SPREAD = 0.5

AnyModel = FittedModel | FittedNetwork
ModelT = TypeVar("ModelT", bound=AnyModel)


class ClassifierBase(ClassifierMixin, EstimatorBase):
    """Fit, predict, score, save. Subclasses say how a model is trained, in `_fit_model`.

    Attributes after ``fit``:
        classes_: The labels, sorted.
        history_: DataFrame, one row a logged step.
        n_iter_: Steps done.
        temperature_: What log probabilities are divided by; 1 without ``calibrate``.
        image_shape_: Channels, height and width; None for tables.
        n_features_in_, feature_names_in_: As everywhere in scikit-learn; for images channels · height · width.
    """

    calibrate: str | None
    views: str
    #: Words that ``calibrate`` takes.
    _calibrations: ClassVar[tuple[str, ...]] = ("temperature", "loo")

    model_: AnyModel
    scaler_: TableScaler | ImageScaler
    classes_: NDArray[Any]
    temperature_: float
    sampling_seed_: int
    image_shape_: tuple[int, ...] | None
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @abstractmethod
    def _check_options(self) -> None:
        """Refuse option values that are not allowed, before anything is computed."""

    @abstractmethod
    def _fit_model(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> AnyModel:
        """Train on scaled data of one member."""

    @property
    def _likelihood(self) -> ClassLikelihood:
        """How labels become targets; a network with a softmax head has no choice."""
        return ClassLikelihood(getattr(self, "likelihood", "dirichlet"))

    def _fit_sparse(self, source: BatchSource, n_classes: int, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        """Train over batches of scaled rows; for estimators with inducing points."""
        raise OptionError(
            f"{type(self).__name__} cannot be fitted to a Dataset or DataLoader: pass arrays, or use GDKLClassifier."
        )

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Fit to a table or to images.

        Args:
            X: Rows ``(n, d)``: array, DataFrame, tensor or nested list of finite numbers; or images as an array or
                tensor ``(n, channels, height, width)``; channels in the last place are refused. Integer images are
                divided by 255. GDKL and DKL: or a torch Dataset, DataLoader or list of batches that yields pairs of
                either and whole numbers for labels, and then no ``y``.
            y: Labels ``(n,)``: numbers, strings or booleans, of two classes or more.
            **unsupported: Nothing: ``sample_weight`` is refused with a clear error.

        Returns:
            The estimator itself.
        """
        refuse_fit_options(unsupported)
        check_number("verbose", self.verbose, low=0, strict=False, integer=True, boolean=True)
        self._check_options()
        _check_calibration(self.calibrate, self._calibrations)
        _check_views(self.views)
        device = resolve_device(self.device)
        if is_stream(X, y):
            with torch.inference_mode(False), torch.enable_grad():
                self._fit_loader(X, y, device)
            return self
        refuse_malformed_batches(X, y)
        scaler, rows = self._read_training_rows(X)
        self._require_images_for_views()
        classes, labels = check_labels(self, y, len(rows))
        self.classes_ = classes
        seed, callbacks = draw_seed(self.random_state), self._callbacks()
        # Training needs gradients, whatever the caller has switched off around it.
        with torch.inference_mode(False), torch.enable_grad():
            network, algebra = self._precisions()
            data = ClassData.make(
                torch.as_tensor(rows, dtype=network, device=device).unsqueeze(0),
                torch.as_tensor(labels, device=device).unsqueeze(0),
                len(classes),
                self._likelihood,
                algebra,
            )
            with self._resumable(seed, lambda: digest(rows, labels)) as checkpoints:
                temperature, model = self._fit_calibrated(data, seed, callbacks)
                if checkpoints is not None:
                    checkpoints.end(model.outcome)
        self._adopt(model, scaler, seed, temperature)
        self._tell_of_interrupt(model.outcome)
        return self

    def _fit_loader(self, X: Any, y: Any, device: torch.device) -> None:
        """Train over the batches that a Dataset or DataLoader yields."""
        if y is not None:
            raise DataError("a Dataset or DataLoader yields its own labels: call fit(loader) without y.")
        wants = "inference='exact'" if getattr(self, "inference", "sparse") == "exact" else "calibrate='temperature'"
        if wants.startswith("inference") or self.calibrate == "temperature":
            raise OptionError(f"{wants} needs all rows at once: pass arrays instead of a Dataset or DataLoader.")
        seed = draw_seed(self.random_state)
        loader = SeededPasses(as_loader(X, getattr(self, "batch_size", None), seed), seed)
        wanted = getattr(self, "checkpoint_dir", None) is not None
        told = first_pass(loader, labels=True, seed=seed, fingerprint=wanted)
        scaler = read_class_loader(self, told)
        self._require_images_for_views()
        check_row_count(told.rows)
        network = self._precisions()[0] if self.image_shape_ is not None else sparse_precisions(self.dtype)[0]
        source = class_loader(loader, told, scaler, self.classes_, device, network)
        self.inference_ = "sparse"
        with self._resumable(seed, lambda: told.fingerprint, told.order) as checkpoints:
            model = self._fit_sparse(source, len(self.classes_), seed, self._callbacks(source.batch_size))
            if checkpoints is not None:
                checkpoints.end(model.outcome)
        self._adopt(model, scaler, seed, 1.0)
        self._tell_of_interrupt(model.outcome)

    def _fit_calibrated(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> tuple[float, AnyModel]:
        """A temperature, where one is wanted, and a model."""
        try:
            temperature, model = 1.0, None
            if self.calibrate == "temperature":
                temperature, model = self._fit_temperature(data, seed, callbacks)
            model = model or self._fit_model(data, seed, callbacks)
            if isinstance(model, FittedModel) and model.left_out is not None:
                temperature = self._left_out_temperature(model.left_out, seed)
                model.left_out = None
            if isinstance(model, FittedModel) and model.held_out is not None:
                rows, labels = model.held_out.rows, model.held_out.targets
                temperature = best_temperature(self._log_probs(model, rows[None], seed)[0], labels, spread=_SPREAD)
                model.held_out = None
            return temperature, model
        except DataError as error:
            if not str(error).startswith("feature_net failed"):
                raise
            if self.image_shape_ is not None:
                shape = " x ".join(map(str, self.image_shape_))
                told = str(error).replace(f"rows of {data.rows.shape[-1]} columns", f"images of {shape}")
                raise DataError(told) from error
            hint = "If these are flat images, pass them in 4 dimensions, as (n, channels, height, width)."
            raise DataError(f"{str(error).rstrip('.')}. {hint}") from error

    def _read_training_rows(self, X: Any) -> tuple[TableScaler | ImageScaler, NDArray[Any]]:
        """Check the inputs of ``fit``, remember their shape and scale them."""
        if is_image_batch(X):
            images, integers = read_images(self, X, reset=True)
            check_row_count(len(images))
            scaler = ImageScaler.fit(images, integers)
            return scaler, scaler.rows(images)
        table = read_table(self, X, reset=True)
        check_row_count(len(table))
        self.image_shape_ = None
        scaler = TableScaler.fit(table, getattr(self, "feature_names_in_", None))
        return scaler, scaler.rows(table)

    def _precisions(self) -> tuple[torch.dtype, torch.dtype]:
        """Of the network and of the algebra. Networks over images are float32, whose features lose nothing by it."""
        algebra = resolve_dtype(self.dtype)
        return (torch.float32 if self.image_shape_ is not None and self.dtype == "auto" else algebra), algebra

    def _fit_temperature(
        self, data: ClassData, seed: int, callbacks: Sequence[Callback]
    ) -> tuple[float, AnyModel | None]:
        """The temperature that suits labels a first model has not seen.

        Returns:
            The temperature, and that first model if the user interrupted its training: then there is no second.
        """
        kept, held_out = hold_out(to_numpy(data.labels[0]).astype(np.int64), seed)
        if len(kept) < MIN_ROWS:
            raise DataError(
                f"calibrate='temperature' holds out a fifth of each class, one row at least, which leaves {len(kept)} "
                f"of {data.n} rows to learn from: give more rows, or use calibrate=None."
            )
        model = self._fit_model(rows_of(data, kept), seed, callbacks)
        log_probs = self._log_probs(model, data.rows[:, held_out], seed).mean(dim=0)
        labels = data.labels[0, held_out].to(log_probs.device)
        temperature = best_temperature(log_probs, labels, spread=_SPREAD)
        return temperature, trial_that_is_all(model)

    def _left_out_temperature(self, left_out: LeftOut, seed: int) -> float:
        """The temperature that suits each training row's label, predicted from all others."""
        latents, noise, labels = left_out
        base = base_samples(PREDICTION_SAMPLES, latents.mean.shape[1], seed)
        log_probs = _mixture(class_log_probs(latents, self._likelihood, noise.to(latents.mean), base))[0]
        return best_temperature(log_probs, labels[0], spread=_SPREAD)

    def _adopt(
        self, model: AnyModel, scaler: TableScaler | ImageScaler, sampling_seed: int, temperature: float
    ) -> None:
        """Take over a trained model; `gdkl.load` comes this way too."""
        if self.image_shape_ is not None:
            model.most_rows = images_at_a_time(self._device_of(model))
            if isinstance(model, FittedModel) and model.guide is not None:
                model.guide.most_rows = _IMAGES_AT_A_TIME
        self.model_ = model
        self.scaler_ = scaler
        self.sampling_seed_ = sampling_seed
        self.temperature_ = temperature
        self.history_ = pd.DataFrame(model.history)
        self.n_iter_ = model.outcome.steps if model.outcome is not None else len(model.history)

    def _log_probs(self, model: AnyModel, rows: Tensor, seed: int) -> Tensor:
        """Log probabilities of the whole mixture, ``(1, classes, m)``."""
        return self._with_guide(model, self._member_log_probs(model, rows, seed)[0], rows, seed)

    def _with_guide(self, model: AnyModel, members: Tensor, rows: Tensor, seed: int) -> Tensor:
        """Log of the mean of the members' probabilities, and of the guide's own where it has a share."""
        own = _mixture(members)
        if not isinstance(model, FittedModel) or model.guide is None:
            return own
        of_guide = _mixture(self._member_log_probs(model.guide, rows, seed)[0])
        shares = own.new_tensor([1 - model.guide_share, model.guide_share])
        return torch.logsumexp(torch.stack([own, of_guide.to(own)]) + shares.log()[:, None, None, None], dim=0)

    def _member_log_probs(self, model: AnyModel, rows: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Each member's log probabilities, and means and variances of its latent functions."""
        latents = model.marginals(rows)
        base = base_samples(PREDICTION_SAMPLES, latents.mean.shape[1], seed)
        log_probs = class_log_probs(latents, self._likelihood, model.noise.to(latents.mean), base)
        return log_probs, latents.mean, latents.variance

    def predict_distribution(self, X: Any) -> ClassPredictive:
        """The whole predictive distribution at new rows or images: probabilities and the latent functions.

        Where a guide has a share of the probabilities (`GDKLClassifier`), the latent functions are the student's alone.
        """
        wholes: list[Tensor] = []
        latents: list[tuple[Tensor, Tensor]] = []
        for rows in self._scaled_views(X):
            log_probs, mean, variance = self._member_log_probs(self.model_, rows, self.sampling_seed_)
            wholes.append(self._with_guide(self.model_, log_probs, rows, self.sampling_seed_))
            latents.append((mean, variance))
        mean, variance = (torch.cat(part) for part in zip(*latents, strict=True))
        # Law of total variance over the members and views.
        total = variance.mean(dim=0) + mean.var(dim=0, correction=0)
        return ClassPredictive(
            to_numpy(_mixture(torch.cat(wholes))[0]).T / self.temperature_,
            self.classes_,
            to_numpy(mean.mean(dim=0)).T,
            to_numpy(total).T,
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, ``(m, classes)``, columns in the order of ``classes_``."""
        return self.predict_distribution(X).probs

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log probability of each class, ``(m, classes)``."""
        return self.predict_distribution(X).log_probs

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        return self.predict_distribution(X).mode

    def _scaled_views(self, X: Any) -> Iterator[Tensor]:
        """Scaled rows ``(1, m, d)``; of images, one such tensor for each view that predictions are averaged over."""
        self._require_fitted()
        _check_views(self.views)
        scaler = self.scaler_
        if not is_image_batch(X):
            yield self._as_rows(scaler.rows(read_table(self, X, reset=False)))  # pyright: ignore[reportArgumentType]
            return
        images, integers = read_images(self, X, reset=False)
        if not isinstance(scaler, ImageScaler):
            raise DataError("X is 4-D, and the model was fitted to a table: pass rows in 2-D.")
        scaler.check_kind(images, integers)
        for view in image_views(images, Views(self.views)):
            yield self._as_rows(scaler.rows(view))

    def _as_rows(self, rows: NDArray[Any]) -> Tensor:
        return torch.as_tensor(rows, dtype=self._precisions()[0], device=self._model_device()).unsqueeze(0)

    def _require_images_for_views(self) -> None:
        if self.image_shape_ is None and self.views != Views.PLAIN:
            raise OptionError(f"views={self.views!r} is for images: leave it at 'plain' for tables.")

    def _model_device(self) -> torch.device:
        return self._device_of(self.model_)

    @staticmethod
    def _device_of(model: AnyModel) -> torch.device:
        if isinstance(model, FittedModel):
            return model.posterior.weights.device
        return next(model.embed.parameters()).device


def _mixture(log_probs: Tensor) -> Tensor:
    """Log of the mean of the members' probabilities, kept as a batch of one."""
    return torch.logsumexp(log_probs, dim=0, keepdim=True) - math.log(len(log_probs))


def trial_that_is_all(model: ModelT, best: ModelT | None = None) -> ModelT | None:
    """What there is to be of a first fit to some of the rows, if the user interrupted it: then there is no other.

    Args:
        model: What was being fitted.
        best: One that was finished before, if there is one: it is used rather than half of another.
    """
    outcome = model.outcome
    if outcome is None or not outcome.interrupted:
        return None
    chosen = model if best is None else best
    chosen.outcome = replace(chosen.outcome or outcome, interrupted=True, trial=True)
    return chosen


def hold_out(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows kept and rows held out: a fifth of each class, at least one; a class with a single row keeps it."""
    generator = np.random.default_rng(seed)
    held_out: list[int] = []
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) > 1:
            held_out.extend(rows[: max(1, round(_HELD_OUT * len(rows)))].tolist())
    if not held_out:
        raise DataError("calibrate='temperature' needs a class with at least two rows, to hold one of them out.")
    return np.setdiff1d(np.arange(len(labels)), held_out), np.sort(np.asarray(held_out))


def rows_of(data: ClassData, rows: NDArray[np.int64]) -> ClassData:
    """Some of the rows with all that belongs to them."""
    index = torch.as_tensor(rows, device=data.rows.device)
    return ClassData(
        data.rows[:, index],
        data.targets[..., index],
        data.label_noise[..., index],
        data.labels[:, index],
        data.likelihood,
    )


def _check_views(views: Any) -> None:
    if views not in tuple(Views):
        raise OptionError(f"views={views!r} is not known: use one of {', '.join(Views)}.")


def _check_calibration(calibrate: Any, words: tuple[str, ...]) -> None:
    if calibrate is not None and calibrate not in words:
        known = " or ".join(repr(word) for word in words)
        raise OptionError(f"calibrate={calibrate!r} is not known here: use None or {known}.")


def check_likelihood(likelihood: Any) -> None:
    """Refuse a likelihood that is not known."""
    if likelihood not in tuple(ClassLikelihood):
        raise OptionError(f"likelihood={likelihood!r} is not known: use one of {', '.join(ClassLikelihood)}.")
