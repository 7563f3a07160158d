"""The four regressors: GDKL, and what it is compared with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel

from gdkl.estimators.base import RegressorBase
from gdkl.estimators.parts import FeatureNet, check_base_kernel, guide_kernel
from gdkl.estimators.student import StudentOptions
from gdkl.estimators.validation import check_number
from gdkl.guide import GuideKernel, as_kernel_function, fit_guide, subset_size
from gdkl.methods import (
    DEFAULT_LEARNING_RATE,
    DEFAULT_STEPS,
    FittedModel,
    TrainingData,
    fast_options,
    fit_calibrated_gdkl,
    fit_dkl,
    fit_gp,
    fit_nngp,
    fit_sparse_dkl,
    fit_sparse_gdkl,
)
from gdkl.numerics import OptionError, resolve_device, resolve_dtype
from gdkl.training import ArrayBatches, Batch, BatchSource, Callback, Schedule, StepReport, TensorBatches


class DeepKernelRegressor(StudentOptions, RegressorBase):
    """What GDKL and DKL have in common: the student's options, exact inference or inducing points."""

    _guided = False

    def _chooses_sparse(self, rows: int, outputs: int) -> bool:
        device, dtype = resolve_device(self.device), resolve_dtype(self.dtype)
        return self._is_sparse(rows, outputs, device, dtype, guided=self._guided)


#: Part of ``beta`` that counts with inducing points. The guide knows two thousand rows at most, the student all of
#: them; on kin8nm, power and protein (a tenth of the training rows for trial) weights of 0.1 and more cost accuracy.
SPARSE_SHARE = 0.01

_SCHEDULES = {"fast": Schedule.fast, "published": Schedule}


class GDKLRegressor(DeepKernelRegressor):
    """Guided deep kernel learning: learns features like a network, knows what it does not know like its guide.

    A network learns its rows by heart, so the noise of predictions comes from rows that it has not learned yet. With
    exact inference and fewer than 1000 rows a tenth of them join training half-way, equal rows together: how far the
    model is off on them by then, beside its guide, says how far it is off on new ones. From 1000 rows on, 5 % (at least
    100) are kept from training, and the noise is the one that makes them most probable. With inducing points it is 5 %
    (at least 200, or a fifth of fewer than 1000), and none of fewer than 50.

    Args:
        beta: Weight of the guide: 0 trusts the labels alone, large values imitate the guide. With inducing points a
            hundredth of it counts: there the guide knows far fewer rows than the student.
        n_iter: Gradient steps; each sees a random split of the rows.
        guide: The honest model that guides: None for an infinite network of three hidden ReLU layers, any
            `gdkl.infinite` network, any GPyTorch kernel, or a function ``k(x1, x2)``. It sees scaled rows.
        feature_net: None for d-100-100-100-20 with ReLU, a list of widths, a `torch.nn.Module` (copied), or a
            function from the number of columns to one.
        base_kernel: Any GPyTorch kernel over the features; None for a scaled RBF.
        inference: "exact": all rows at every step. "sparse": inducing points and batches, for any number of rows.
            "auto": exact while it fits in memory and takes at most ten minutes here, or up to 2000 rows; see
            ``inference_``.
        n_inducing: Number of inducing points of sparse inference; None for 128.
        batch_size: Rows a step of sparse inference; None for 512. Half of them inform the guide about the others.
        n_members: Members of a deep ensemble that shares one guide; predictions are their mixture.
        tol: Stop when the smoothed objective has improved by less than this for ``patience`` steps.
        patience: See ``tol``.
        learning_rate: Adam's highest; with inducing points, which the features must not leave behind, a third of it.
        schedule: "fast": the rate climbs for a twentieth of the steps and falls along a cosine, kernel and noise go
            three times as fast. "published": the paper's, which falls tenfold at 60 % and 80 %; with ``n_iter=7000,
            learning_rate=0.01`` its protocol, but for the noise.
        weight_decay: On the network's weights.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float64), "float32" or "float64".
        random_state: Seed of weights and splits, and of the order in which a DataLoader shuffles; two fits with one
            seed are equal, unless the loader draws from a generator of its own.
        verbose: 1 shows progress on standard error.
        callbacks: Functions that take a `gdkl.training.StepReport` after each step, or `gdkl.training.Callback`
            objects; a true answer ends training.
        checkpoint_dir: Folder in which sparse inference keeps its state every half minute, the last two of it. The same
            fit, started again with the same options, data and ``random_state`` (which must be given), goes on from
            there, to the same model; ``history_`` then begins at that step. Files are removed when the fit has ended. A
            loader whose batches are not those of before is told of by a `gdkl.training.CheckpointWarning`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> m = GDKLRegressor(n_iter=50, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = m.predict(X, return_std=True)
        >>> low, high = m.predict_distribution(X).interval(0.9)
    """

    def __init__(
        self,
        *,
        beta: float = 1.0,
        n_iter: int = DEFAULT_STEPS,
        guide: GuideKernel | None = None,
        feature_net: FeatureNet = None,
        base_kernel: Kernel | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        batch_size: int | None = None,
        n_members: int = 1,
        tol: float | None = None,
        patience: int | None = None,
        learning_rate: float = DEFAULT_LEARNING_RATE,
        schedule: str = "fast",
        weight_decay: float = 0.0,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ):
        self.beta = beta
        self.n_iter = n_iter
        self.guide = guide
        self.feature_net = feature_net
        self.base_kernel = base_kernel
        self.inference = inference
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.n_members = n_members
        self.tol = tol
        self.patience = patience
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint_dir = checkpoint_dir

    def _check_options(self) -> None:
        super()._check_options()
        check_number("beta", self.beta, low=0, strict=False)
        if self.schedule not in _SCHEDULES:
            raise OptionError(f"schedule={self.schedule!r} is not known: use one of {', '.join(_SCHEDULES)}.")
        guide_kernel(self.guide)

    _guided = True
    _noise_of_held_out_rows = True

    def _schedule(self) -> Schedule:
        return _SCHEDULES[self.schedule](int(self.n_iter), self.learning_rate)

    def _fit_model(self, data: TrainingData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        options = self._options(seed, callbacks)
        if self.schedule == "fast":
            options = fast_options(options, int(self.n_iter), self.learning_rate)
        kernel = as_kernel_function(guide_kernel(self.guide))
        return fit_calibrated_gdkl(data, kernel, options, beta=self.beta, times=int(self.n_members))

    def _fit_sparse(
        self, source: BatchSource, outputs: int, held_out: Batch | None, seed: int, callbacks: Sequence[Callback]
    ) -> FittedModel:
        subset = source.sample(subset_size(source.rows), seed)
        kernel = as_kernel_function(guide_kernel(self.guide))
        guide = fit_guide(kernel, subset.rows[None], subset.targets[None]).for_batches()
        if isinstance(source, (TensorBatches, ArrayBatches)):
            # Rows that can be had by number are asked about once, ahead; those of a loader by half batches.
            guide = guide.precompute_marginals(source.take_pair, source.rows, seed)
        options = self._sparse_options(self._options(seed, callbacks), source.rows, subset.targets.dtype)
        slower = replace(options.schedule, learning_rate=options.schedule.learning_rate / 3)
        options = replace(options, schedule=slower)
        return fit_sparse_gdkl(source, guide, options, beta=SPARSE_SHARE * self.beta, held_out=held_out)


class DKLRegressor(DeepKernelRegressor):
    """Deep kernel learning by evidence: the classic, which overfits small data. For comparison.

    Args:
        n_iter: Gradient steps on all rows.
        feature_net: As for `GDKLRegressor`.
        base_kernel: As for `GDKLRegressor`.
        inference: As for `GDKLRegressor`.
        n_inducing: As for `GDKLRegressor`.
        batch_size: As for `GDKLRegressor`.
        n_members: As for `GDKLRegressor`.
        tol: As for `GDKLRegressor`.
        patience: As for `GDKLRegressor`.
        learning_rate: As for `GDKLRegressor`.
        weight_decay: On the network's weights; the paper's value by default.
        device: As for `GDKLRegressor`.
        dtype: As for `GDKLRegressor`.
        random_state: Seed of the weights.
        verbose: 1 shows progress on standard error.
        callbacks: As for `GDKLRegressor`.
        checkpoint_dir: As for `GDKLRegressor`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> DKLRegressor(n_iter=20, random_state=0).fit(X, np.sin(X[:, 0])).predict(X).shape
        (40,)
    """

    def __init__(
        self,
        *,
        n_iter: int = 8000,
        feature_net: FeatureNet = None,
        base_kernel: Kernel | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        batch_size: int | None = None,
        n_members: int = 1,
        tol: float | None = None,
        patience: int | None = None,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-4,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callback | Callable[[StepReport], bool | None]] | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ):
        self.n_iter = n_iter
        self.feature_net = feature_net
        self.base_kernel = base_kernel
        self.inference = inference
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.n_members = n_members
        self.tol = tol
        self.patience = patience
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint_dir = checkpoint_dir

    def _fit_model(self, data: TrainingData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        return fit_dkl(data.repeat(self.n_members), self._options(seed, callbacks))

    def _fit_sparse(
        self, source: BatchSource, outputs: int, held_out: Batch | None, seed: int, callbacks: Sequence[Callback]
    ) -> FittedModel:
        algebra = source.sample(2, seed).targets.dtype
        options = self._sparse_options(self._options(seed, callbacks), source.rows, algebra)
        return fit_sparse_dkl(source, outputs, options, held_out=held_out)


class NNGPRegressor(RegressorBase):
    """The guide alone: a Gaussian process with the kernel of an infinitely wide network.

    Output scale and noise are fitted by evidence to convergence; there are no steps to tune.

    Args:
        guide: As for `GDKLRegressor`.
        device: As for `GDKLRegressor`.
        dtype: As for `GDKLRegressor`.
        random_state: Accepted for uniformity; nothing here is random.
        verbose: Accepted for uniformity; there is no loop to show.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> round(NNGPRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])), 2)
        1.0
    """

    def __init__(
        self,
        *,
        guide: GuideKernel | None = None,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.guide = guide
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self) -> None:
        guide_kernel(self.guide)

    def _fit_model(self, data: TrainingData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        guide = fit_guide(as_kernel_function(guide_kernel(self.guide)), data.rows, data.targets)
        return fit_nngp(data, guide)


class GPRegressor(RegressorBase):
    """A plain Gaussian process on the columns, RBF by default: the bar on small tables.

    Kernel parameters and noise are fitted by evidence (L-BFGS, several starts); there are no steps to tune.

    Args:
        ard: Whether the RBF has a lengthscale a column.
        base_kernel: Any GPyTorch kernel instead of the RBF.
        device: As for `GDKLRegressor`.
        dtype: As for `GDKLRegressor`.
        random_state: Accepted for uniformity; nothing here is random.
        verbose: Accepted for uniformity.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> round(GPRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])), 2)
        1.0
    """

    def __init__(
        self,
        *,
        ard: bool = False,
        base_kernel: Kernel | None = None,
        device: str = "auto",
        dtype: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.ard = ard
        self.base_kernel = base_kernel
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self) -> None:
        check_base_kernel(self.base_kernel)
        if not isinstance(self.ard, (bool, np.bool_)):
            raise OptionError(f"ard={self.ard!r} is not allowed: use True or False.")
        if self.ard and self.base_kernel is not None:
            raise OptionError("ard is for the default RBF: give base_kernel its own ard_num_dims instead.")

    def _fit_model(self, data: TrainingData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        return fit_gp(data, ard=self.ard, base_kernel=self.base_kernel)
