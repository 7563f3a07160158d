"""What all estimators share: `fit` chooses kind, inference and preset once, trains, and takes over the model."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor

from gdkl.estimators.checks import check_number, check_student_options, refuse_fit_options
from gdkl.estimators.diagnosing import Diagnosing
from gdkl.estimators.factories import FeatureNet
from gdkl.estimators.loader_source import LoaderSource
from gdkl.estimators.plan import Plan
from gdkl.estimators.presets import Preset, check_preset, resolve
from gdkl.estimators.regimes import Regime
from gdkl.estimators.resuming import FitCheckpoints
from gdkl.estimators.row_noise import RowNoise
from gdkl.estimators.saving import save
from gdkl.estimators.sklearn_callbacks import CallbackSupport, StepTasks, fit_with_callbacks, has_callbacks
from gdkl.estimators.sources import ArraySource
from gdkl.inputs import FloatArray
from gdkl.numerics import (
    InterruptedFitWarning,
    NotFittedError,
    OptionError,
    available_memory,
    named_memory_errors,
    resolve_device,
    resolve_dtype,
)
from gdkl.training import (
    ALONE,
    Callback,
    Checkpoint,
    EpochProgress,
    FittedModel,
    FittedNetwork,
    KeepOnInterrupt,
    Problem,
    ProgressDisplay,
    Stack,
    StepReport,
    TrainingOutcome,
    as_callbacks,
    current_world,
    prefers_exact,
)

if TYPE_CHECKING:
    import pandas as pd
    from gpytorch.kernels import Kernel

_INFERENCES = ("auto", "exact", "sparse")

AnyModel = FittedModel | FittedNetwork

#: What to do where memory runs out in training.
_LESS = "Use inference='sparse', fewer rows or outputs, smaller batches or a smaller feature_net, or another device."

#: Where the rows and targets of a fit come from.
Source: TypeAlias = ArraySource | LoaderSource


class Fit(NamedTuple):
    """What training gives: the model, the stack that it is part of, and for classes temperature and β."""

    model: AnyModel
    stack: Stack | None = None
    temperature: float = 1.0
    beta: float | None = None


class EstimatorBase(Diagnosing, CallbackSupport, BaseEstimator, ABC):
    """Options that every estimator has, and how a fit goes, whatever the kind of target."""

    #: What default numbers are looked up by.
    _method: ClassVar[str]
    #: Whether there is inference with inducing points, for which a class has `_fit_sparse`.
    _has_sparse: ClassVar[bool] = False

    device: str
    dtype: str
    random_state: Any
    verbose: int
    # Options that some estimators do not offer.
    beta: float | None = None
    n_iter: int | None = None
    guide: Any = None
    guide_share: float | str | None = None
    warp: Any = None
    feature_net: FeatureNet = None
    base_kernel: Kernel | None = None
    inference: str = "exact"
    n_inducing: int | None = None
    n_members: int = 1
    augment: bool | str = False
    preset: Preset | str | None = None
    callbacks: Sequence[Callback | Checkpoint | Callable[[StepReport], bool | None]] | None = None

    model_: AnyModel
    history_: pd.DataFrame
    n_iter_: int
    inference_: str
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    #: Names of the targets, where y came with any.
    target_names_: list[str]
    #: Where a model comes from, in plain JSON: ``gdkl fit`` notes data, target and scores, others what they like. It is
    #: kept in the model's file.
    provenance_: dict[str, Any]

    @abstractmethod
    def _read(self, X: Any, y: Any, seed: int, calibrate: bool) -> Source:
        """Check data, remember their columns, and learn their scales."""

    @abstractmethod
    def _train(self, source: Source, plan: Plan) -> Fit:
        """Train as planned."""

    @abstractmethod
    def _adopt(self, fit: Fit) -> None:
        """Take over what was trained; `gdkl.load` comes this way too."""

    def _check_options(self) -> None:
        """Refuse option values that are not allowed, before data are looked at."""
        check_number("verbose", self.verbose, low=0, strict=False, integer=True, boolean=True)
        check_preset(self.preset)
        if self.inference not in _INFERENCES:
            raise OptionError(f"inference={self.inference!r} is not known: use one of {', '.join(_INFERENCES)}.")
        check_student_options(self)

    @staticmethod
    def _default_kernel() -> Kernel | None:
        """Kernel over the features where the user gives none; None for a scaled RBF."""
        return None

    @property
    def _guided(self) -> bool:
        """Whether a step conditions one half of its rows on the other, which is cheaper than the evidence of all."""
        return self._method == "gdkl"

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Fit to data.

        Args:
            X: Rows ``(n, d)``: array (a memory-mapped one is not copied where inference is sparse), tensor or nested
                list of finite numbers, or any DataFrame: categories, dates and missing cells are encoded. Classifiers:
                or images ``(n, channels, height, width)``; integers are divided by 255. GDKL and DKL: or a torch
                Dataset, DataLoader or list of batches that yields pairs of rows and targets, and then no ``y``.
            y: Targets ``(n,)`` or ``(n, n_outputs)`` of a regressor; several outputs are modelled independently. Labels
                ``(n,)`` of a classifier: numbers, strings or booleans.
            **unsupported: Nothing: ``sample_weight`` is refused with a clear error.

        Returns:
            The estimator itself.
        """
        refuse_fit_options(unsupported)
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, noise: RowNoise | None = None, tasks: StepTasks | None = None) -> Self:
        """Fit to data of which the noise of each row may be known; ``tasks`` tells callbacks of scikit-learn of it."""
        if tasks is None and has_callbacks(self):
            fit_with_callbacks(self, X, y, noise)
            return self
        self._check_options()
        device = resolve_device(self.device)
        # Training needs gradients, whatever the caller has switched off around it.
        with torch.inference_mode(False), torch.enable_grad(), _as_before_on_failure(self):
            seed = draw_seed(self.random_state)
            source = self._read(X, y, seed, self._may_calibrate())
            if noise is not None:
                source = replace(cast(ArraySource, source), noise=noise)
            exact = self._choose_inference(source, device)
            if noise is not None and not exact:
                raise OptionError(
                    "sample_weight and noise_var need exact inference: use inference='exact', or fit without them."
                )
            checkpoints = self._checkpoints(source, seed)
            plan = self._plan(source, device, seed, exact, checkpoints)
            if tasks is not None:
                plan = replace(plan, callbacks=[*plan.callbacks, tasks])
            with named_memory_errors(
                what=f"training on {source.rows} rows of {self.n_features_in_} columns", remedy=_LESS, device=device
            ):
                fit = self._train(source, plan)
            if checkpoints is not None:
                checkpoints.end(fit.model.outcome)
            self.inference_ = "exact" if exact else "sparse"
            self._remember_targets(y)
            self._adopt(fit)
        self._end_interrupted(fit.model.outcome)
        return self

    def _remember_targets(self, y: Any) -> None:
        """Keep the names of a Series or a DataFrame; what was noted of an earlier fit is of no use any more."""
        for name in ("target_names_", "provenance_"):
            vars(self).pop(name, None)
        columns = getattr(y, "columns", None)
        names: list[Any] = [getattr(y, "name", None)] if columns is None else list(columns)
        if names and all(isinstance(name, str) and name for name in names):
            self.target_names_ = names

    def _may_calibrate(self) -> bool:
        """Whether rows of a loader may be held out: asked before anything is known of the data."""
        regime = Regime(self._method, self._is_classifier(), images=False, exact=False, rows=1)
        return bool(resolve(self.preset, regime).calibrate)

    def _networks(self) -> int:
        """Networks that an exact fit trains."""
        return int(self.n_members)

    def _is_classifier(self) -> int:
        return 0

    def _batch_option(self) -> int | None:
        """Rows per batch, if the user says."""
        return self.preset.batch_size if isinstance(self.preset, Preset) else None

    def _choose_inference(self, source: Source, device: torch.device) -> bool:
        """Whether inference is exact: by the option, else by memory and work, which depend on sizes alone."""
        if isinstance(source, LoaderSource):
            if self.inference == "exact":
                raise OptionError(
                    "inference='exact' needs all rows at once: pass arrays instead of a Dataset or DataLoader."
                )
            return False
        if self.inference != "auto" or not self._has_sparse:
            return self.inference != "sparse"
        preset = self._resolve(source, device, exact=True)
        # A stack's guides know all rows: their work grows with n as that of full steps does.
        per_step = int(preset.batch_size) or None if self._is_classifier() else None
        size = (source.rows, source.outputs, self._networks(), self._guided, per_step)
        problem = Problem(*size, resolve_dtype(self.dtype), device.type)
        return prefers_exact(problem, int(preset.n_iter), available_memory(device))

    def _resolve(self, source: Source, device: torch.device, *, exact: bool) -> Preset:
        """Every number of the fit."""
        images = source.kind.input.image_shape is not None
        augmentation = source.kind.augmentation(self.augment, exact=exact, recombines=self._guided)
        regime = Regime(
            self._method,
            source.outputs if self._is_classifier() else 0,
            images=images,
            exact=exact,
            rows=source.rows,
            cuda=device.type == "cuda",
            augmented=augmentation.crop,
            own_guide=self.guide is not None,
        )
        return resolve(
            self.preset,
            regime,
            n_iter=self.n_iter,
            beta=self.beta,
            guide_share=self.guide_share,
            n_inducing=self.n_inducing,
        )

    def _plan_exact(self, source: Source, device: torch.device) -> Plan:
        """The plan of an exact fit without checkpoints."""
        return self._plan(source, device, draw_seed(self.random_state), True, None)

    def _plan(
        self, source: Source, device: torch.device, seed: int, exact: bool, checkpoints: FitCheckpoints | None
    ) -> Plan:
        preset = self._resolve(source, device, exact=exact)
        return Plan(
            kind=source.kind,
            exact=exact,
            preset=preset,
            augmentation=source.kind.augmentation(self.augment, exact=exact, recombines=self._guided),
            device=device,
            network_dtype=source.kind.precision(self.dtype, exact=exact),
            algebra=resolve_dtype(self.dtype),
            seed=seed,
            members=int(self.n_members),
            feature_net=self.feature_net,
            base_kernel=self.base_kernel or self._default_kernel(),
            callbacks=self._step_callbacks(None if exact else int(preset.batch_size)),
            world=ALONE if exact else current_world(),
            checkpoint=None if checkpoints is None else checkpoints.of,
        )

    def _step_callbacks(self, rows_per_step: int | None) -> list[Callback]:
        """Progress, if it is to be shown, and the user's own."""
        name = type(self).__name__
        shown: Callback = ProgressDisplay(name) if rows_per_step is None else EpochProgress(name, rows_per_step)
        own = [callback for callback in self.callbacks or () if not isinstance(callback, Checkpoint)]
        return [*([shown] if self.verbose else []), *as_callbacks(own)]

    def _user_checkpoint(self) -> Checkpoint | None:
        return next((callback for callback in self.callbacks or () if isinstance(callback, Checkpoint)), None)

    def _checkpoints(self, source: Source, seed: int) -> FitCheckpoints | None:
        """Checkpoints of this very fit, if the user passed a `gdkl.training.Checkpoint` among the callbacks."""
        wanted = self._user_checkpoint()
        if wanted is None:
            return None
        if self.random_state is None:
            raise OptionError("a Checkpoint needs a random_state, such as 0: a fit resumes only with the seed it had.")
        return FitCheckpoints(wanted, self, seed, *source.identity())

    def _end_interrupted(self, outcome: TrainingOutcome | None) -> None:
        """Raise KeyboardInterrupt after a fit that the user interrupted, or warn where they want to go on.

        Whatever called `fit`, a grid search or a script, would otherwise go on with a half-trained model.
        """
        if outcome is None or not outcome.interrupted:
            return
        told = f"Training was interrupted after {outcome.steps} steps; the model is usable as it stood then."
        if outcome.trial:
            told += " It was a trial fit, to some of the rows, and the model knows those alone."
        if not any(isinstance(callback, KeepOnInterrupt) for callback in self.callbacks or ()):
            raise KeyboardInterrupt(told)
        warnings.warn(told, InterruptedFitWarning, stacklevel=4)

    def _adopt_history(self, model: AnyModel) -> None:
        import pandas as pd  # noqa: PLC0415  (slow to import)

        self.model_ = model
        self.history_ = pd.DataFrame(model.history)
        self.n_iter_ = model.outcome.steps if model.outcome is not None else len(model.history)

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, y) first.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safe file; `gdkl.load` reads it back."""
        save(self, path)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model of a table as an ONNX file, which other programs run without this library.

        Inputs are the columns of the DataFrame of ``fit`` by name, each ``(m,)``: numbers in double precision, NaN
        where they are missing; categories as text, empty where they are missing. For a model of an array, one input
        ``X``, ``(m, d)``. Outputs are ``mean`` and ``std`` of a new observation, or ``label`` and ``probabilities``, as
        `predict` and `predict_proba` give them.

        Raises:
            ModelFileError: If the model has a part that ONNX cannot express: dates, images, kernels and networks that
                are neither the defaults nor close to them, a pair of functions as ``warp``.
            OptionError: If the package ``onnx`` is missing.

        Example:
            >>> import tempfile, onnxruntime
            >>> from gdkl import NNGPRegressor
            >>> x = np.linspace(-1, 1, 30)[:, None]
            >>> model = NNGPRegressor().fit(x, x[:, 0] ** 2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.to_onnx(f"{folder}/model.onnx")
            ...     session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
            >>> mean, std = session.run(None, {"X": x})
            >>> np.allclose(mean, model.predict(x))
            True
        """
        from gdkl.estimators.exporting import write_onnx  # noqa: PLC0415  (seldom used)

        write_onnx(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


@contextmanager
def _as_before_on_failure(estimator: EstimatorBase) -> Generator[None]:
    """A fit that fails, or is broken off, leaves the estimator as it was: half of a fit must not meet an old model."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def draw_seed(random_state: Any) -> int:
    """A seed from whatever scikit-learn takes as ``random_state``, or from a NumPy generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise OptionError(
            f"random_state={random_state!r} is not allowed: use None, a whole number from 0 to 4294967295 or a "
            "NumPy generator."
        ) from error


def to_numpy(tensor: Tensor) -> FloatArray:
    """A tensor as an array in float64."""
    return tensor.detach().double().cpu().numpy()
