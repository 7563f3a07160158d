"""The four regressors: GDKL, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gdkl.calibration import FOLDS
from gdkl.estimators.checks import check_flag
from gdkl.estimators.factories import check_base_kernel, guide_kernel
from gdkl.estimators.features import FeaturesMixin
from gdkl.estimators.kinds import AUTO
from gdkl.estimators.options import CommonOptions, StudentOptions
from gdkl.estimators.plan import Plan
from gdkl.estimators.regression import RegressorBase
from gdkl.guide import GuideKernel, fit_guide, informative, subset_size
from gdkl.methods import (
    FEWEST_ROWS,
    fit_batch_guide,
    fit_dkl,
    fit_gdkl,
    fit_gp,
    fit_guides_alone,
    fit_nngp,
    fit_relevant_nngp,
    fit_sparse_dkl,
    fit_sparse_gdkl,
    fit_stacked_gdkl,
)
from gdkl.numerics import OptionError
from gdkl.objectives import SplitObjective
from gdkl.training import (
    Batch,
    BatchSource,
    FittedModel,
    NumberedBatches,
    Stack,
    TrainingData,
)

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel


class StudentRegressor(FeaturesMixin, StudentOptions, RegressorBase):
    """What GDKL and DKL have in common: the student's options, and its features."""


@dataclass(kw_only=True, eq=False, repr=False)
class GDKLRegressor(StudentRegressor):
    """Guided deep kernel learning: learns features like a network, keeps the uncertainty of an infinite one.

    With exact inference predictions are a mixture: guides with several priors on the columns' relevances, and one
    student per fold, trained on the rows outside it. Rows of each fold, which its student has not learned, set the
    weights and the noise (``weights_``, ``noise_``). Fewer than 4 rows, or a constant target, leave nothing to hold
    out: the guides predict alone, with equal weights. With inducing points there is one guide with
    relevances and one student, and 5 % of the rows are held out to set its noise.

    Args:
        beta: Weight of the guide: 0 trusts the labels alone, large values imitate the guide. None for 1, and 0.01 with
            inducing points, where the guide knows far fewer rows than the student.
        n_iter: Gradient steps; each sees a random split of the rows. None for 100, and 2000 with inducing points.
        guide: The model that guides: None for an infinite network of three hidden ReLU layers, any `gdkl.infinite`
            network, any GPyTorch kernel, or a function ``k(x1, x2)``. It sees scaled rows.
        feature_net: None for d-50-50-50-20 with ReLU (100 in place of 50 with inducing points), a list of widths, a
            `torch.nn.Module` (copied), or a function from the number of columns to one.
        base_kernel: Any GPyTorch kernel over the features; None for a scaled RBF.
        inference: "exact": all rows at every step. "sparse": inducing points and mini-batches, for any number of rows.
            "auto": exact while it fits in memory and its work stays below some ten minutes; see ``inference_``.
        n_inducing: Number of inducing points; None for 128.
        n_members: Networks per fold, or with inducing points and with the published protocol members of a deep ensemble
            that shares one guide; predictions are their mixture.
        guide_share: Weight of the guides in predictions: "auto" by held-out rows, 0 for the student alone.
        warp: Of the target, monotone: "auto" for the best of none, a power transform and, of positive targets, the
            logarithm, by the guide's leave-one-out predictions (none with inducing points); None; "log"; or a pair
            (function, its inverse).
        preset: Every other number: None for the library's own, "paper" for the published protocol, or a `gdkl.Preset`.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float64), "float32" or "float64".
        random_state: Seed of weights and splits, and of the order in which a DataLoader shuffles; two fits with one
            seed, and as many threads, are equal, unless the loader draws from a generator of its own.
        verbose: 1 shows progress on standard error.
        callbacks: Functions that take a `gdkl.training.StepReport` after each step, or `gdkl.training.Callback`
            objects such as ``EarlyStopping(tol, patience)``; a true answer ends training. A
            `gdkl.training.Checkpoint(folder)` saves the state, from which the same fit resumes (it needs a
            ``random_state``).

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> m = GDKLRegressor(n_iter=50, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = m.predict(X, return_std=True)
        >>> low, high = m.predict_distribution(X).interval(0.9)
    """

    _method: ClassVar[str] = "gdkl"
    _has_sparse: ClassVar[bool] = True

    beta: float | None = None
    guide: GuideKernel | None = None
    guide_share: float | str | None = AUTO
    warp: Any = AUTO

    def _check_options(self) -> None:
        super()._check_options()
        guide_kernel(self.guide)

    def _is_stack(self) -> bool:
        return self._may_calibrate()

    def _refuse_share(self, way: str) -> None:
        if self.guide_share not in (AUTO, None) and self.guide_share != 0:
            raise OptionError(
                f"guide_share={self.guide_share!r} needs the stack: with {way} the student predicts alone."
            )

    def _networks(self) -> int:
        return (FOLDS if self._is_stack() else 1) * super()._networks()

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel | Stack:
        kernel, preset = guide_kernel(self.guide), plan.preset
        options = plan.options(data.n)
        tells = bool(informative(data.targets).any())
        if preset.calibrate and (data.n < FEWEST_ROWS or not tells):
            groups, smooth = plan.column_groups(), self.guide is None
            return fit_guides_alone(data, kernel, smooth=smooth, groups=groups, noise_floor=options.noise_floor)
        if preset.calibrate:
            return fit_stacked_gdkl(
                data,
                kernel,
                options,
                beta=preset.beta,
                mu=preset.mu if preset.beta else 0.0,
                times=plan.members,
                smooth=self.guide is None,
                groups=plan.column_groups(),
                guide_share=None if preset.guide_share == AUTO else float(preset.guide_share),
                rows_per_step=int(preset.batch_size) or None,
            )
        self._refuse_share("the published protocol")
        guide = fit_guide(plan.kind.kernel(kernel), **data.all_arguments(), noise_floor=options.noise_floor)
        if data.n < 2 or not tells:
            # There is no row to hold out, or none that says anything.
            return fit_nngp(data, guide)
        objective = SplitObjective(preset.objective)
        several = data.repeat(plan.members)
        return fit_gdkl(several, guide, options, beta=preset.beta, mu=preset.mu, objective=objective)

    def _fit_sparse(self, source: BatchSource, outputs: int, held_out: Batch | None, plan: Plan) -> FittedModel:
        self._refuse_share("inducing points")
        kernel, options, preset = guide_kernel(self.guide), plan.options(source.rows), plan.preset
        surroundings = None
        if preset.calibrate:
            mu = preset.mu if preset.beta else 0.0
            guide, surroundings, options = fit_batch_guide(source, kernel, options, mu=mu, groups=plan.column_groups())
        else:
            subset = source.sample(subset_size(source.rows), plan.seed)
            guide = fit_guide(plan.kind.kernel(kernel), subset.rows[None], subset.targets[None]).for_batches()
        if isinstance(source, NumberedBatches):
            # Rows that have positions are asked about once, ahead; those of a loader by half batches.
            guide = guide.precompute_marginals(source.take_pair, source.rows, plan.seed)
        return fit_sparse_gdkl(source, guide, options, beta=preset.beta, surroundings=surroundings, held_out=held_out)


class DKLRegressor(StudentRegressor):
    """Deep kernel learning by evidence: the classic, which overfits small data. For comparison.

    Its options are those of `GDKLRegressor`, without the guide. ``n_iter=None`` is 8000 steps.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> DKLRegressor(n_iter=20, random_state=0).fit(X, np.sin(X[:, 0])).predict(X).shape
        (40,)
    """

    _method: ClassVar[str] = "dkl"
    _has_sparse: ClassVar[bool] = True

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        if plan.preset.calibrate:
            raise OptionError("exact DKL has no calibrated noise: use inference='sparse', or Preset(calibrate=False).")
        return fit_dkl(data.repeat(plan.members), plan.options(data.n))

    def _fit_sparse(self, source: BatchSource, outputs: int, held_out: Batch | None, plan: Plan) -> FittedModel:
        return fit_sparse_dkl(source, outputs, plan.options(source.rows), held_out=held_out)


@dataclass(kw_only=True, eq=False, repr=False)
class NNGPRegressor(CommonOptions, RegressorBase):
    """The guide alone: a Gaussian process with the kernel of an infinitely wide network.

    Output scale and noise are fitted by evidence to convergence; there are no steps to tune.

    Args:
        guide: The kernel, as for `GDKLRegressor`.
        relevance: Whether each column is multiplied by a relevance of its own, fitted by evidence with a prior, which
            all outputs share. After ``fit``, ``relevance_`` has one number per column of X, 0 for a constant one: a
            DataFrame where columns have names, else an array.
        device, dtype: As for `GDKLRegressor`.
        random_state, verbose: Accepted for uniformity.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> round(NNGPRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])), 2)
        1.0
    """

    _method: ClassVar[str] = "nngp"

    guide: GuideKernel | None = None
    relevance: bool = False

    def _check_options(self) -> None:
        super()._check_options()
        check_flag("relevance", self.relevance)
        guide_kernel(self.guide)

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        if self.relevance:
            return fit_relevant_nngp(data, guide_kernel(self.guide), plan.column_groups())
        return fit_nngp(data, fit_guide(plan.kind.kernel(guide_kernel(self.guide)), **data.all_arguments()))


@dataclass(kw_only=True, eq=False, repr=False)
class GPRegressor(CommonOptions, RegressorBase):
    """A plain Gaussian process on the columns, RBF by default: the bar on small tables.

    Hyperparameters and noise are fitted by evidence (L-BFGS, several starts); there are no steps to tune.

    Args:
        ard: Whether the RBF has one lengthscale per column; then lengthscales and noise have BoTorch's priors.
        base_kernel: Any GPyTorch kernel instead of the RBF.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> round(GPRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])), 2)
        1.0
    """

    _method: ClassVar[str] = "gp"

    ard: bool = False
    base_kernel: Kernel | None = None

    def _check_options(self) -> None:
        super()._check_options()
        check_flag("ard", self.ard)
        if self.ard and check_base_kernel(self.base_kernel) is not None:
            raise OptionError("ard is for the default RBF: give base_kernel its own ard_num_dims instead.")

    def _fit_exact(self, data: TrainingData, plan: Plan) -> FittedModel:
        return fit_gp(data, ard=bool(self.ard), base_kernel=self.base_kernel)
