"""The four classifiers: GDKL, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gdkl.calibration import FOLDS, hold_out_stratified, select
from gdkl.estimators.base import Fit, to_numpy
from gdkl.estimators.classification import ClassifierBase, interrupted_trial
from gdkl.estimators.features import FeaturesMixin
from gdkl.estimators.guided import GuidedClassifier
from gdkl.estimators.kinds import AUTO, TableKind
from gdkl.estimators.options import CommonOptions, NetworkOptions, StudentOptions
from gdkl.estimators.plan import Plan
from gdkl.estimators.presets import Preset
from gdkl.gp import ClassLikelihood
from gdkl.guide import Guide, GuideKernel, subset_size
from gdkl.methods import (
    STUDENT,
    fit_dkl_classes,
    fit_gdkl_classes,
    fit_nn_classes,
    fit_nngp,
    fit_sparse_dkl_classes,
    fit_sparse_gdkl_classes,
    fit_stacked_classes,
)
from gdkl.numerics import OptionError
from gdkl.training import BatchSource, ClassData, Stack, TensorBatches

#: Share of the guide where there is one student, as for images, by whether the guide predicts held-out labels well:
#: chosen on draws that are in no table of results.
_GUIDE_SHARES = {False: 0.25, True: 0.5}

#: Beside the usual weight of the guide of few images, this part of it is tried on a held-out fifth: some images a
#: network learns at once and an infinite one hardly at all, and there a guide must not hold its student back.
_LESS = 1 / 30

#: The fewest held-out images that can tell.
_FEWEST_HELD_OUT = 10


@dataclass(kw_only=True, eq=False, repr=False)
class StudentClassifier(FeaturesMixin, StudentOptions, ClassifierBase):
    """What GDKL and DKL have in common: the student's options, and its features."""

    likelihood: str = "dirichlet"
    augment: bool | str = False
    views: str = "plain"

    def _scaled_rows(self, X: Any, first_row: int = 0) -> Tensor:
        self._require_fitted()
        # The rows or images as they are come first.
        return self._scaled_views(X)[0]


class _Trust(NamedTuple):
    """How far a guide is trusted: its weight in training, and its share in predictions ("auto" by what it predicts)."""

    beta: float
    share: float | str


@dataclass(kw_only=True, eq=False, repr=False)
class GDKLClassifier(GuidedClassifier, StudentClassifier):
    """Guided deep kernel learning of classes: features of a network, one Gaussian process per class over them.

    On tables with exact inference predictions are a mixture, as those of `GDKLRegressor`: guides with several priors on
    the columns' relevances, and one student per fold. Rows of each fold set temperatures and weights (``weights_``,
    ``relevance_``, ``temperature_``).

    Options that are not described here are as for `GDKLRegressor`.

    Args:
        beta: Weight of the guide. None for the preset's: 1 for tables, 0.001 with inducing points; for few images up to
            6 by their number, or a thirtieth of it if a held-out fifth of them is better off with it (two trial fits),
            and 0.1 with inducing points. See ``beta_``.
        n_iter: Gradient steps; each sees a fresh random split of the rows. None for 150 on tables, 500 for images.
        likelihood: "auto" for a softmax by Laplace's approximation on tables with exact inference, and "dirichlet"
            targets for images; with either named a table has one student and one guide. "gaussian" is a regression on
            ±1 per class.
        guide: As for `GDKLRegressor`, or "auto" for a small search over infinite networks (see ``guide_report_``). A
            dense network or a GPyTorch kernel sees images flat.
        guide_share: Weight of the guides in predictions: 0 is the student alone, 1 the guides. None for what held-out
            rows set on tables; for few images 0.25, or 0.5 if the guide predicts held-out labels well; 0 with inducing
            points, where no guide has seen all rows.
        feature_net: As for `GDKLRegressor`; None is, for images, a wide ResNet of depth 10 and factor 2, or 28 and 5
            with inducing points on a GPU. A function gets the number of channels.
        inference: As for `GDKLRegressor`; "sparse" has a softmax over sampled latents in place of the Dirichlet
            likelihood.
        n_inducing: Number of inducing points; None for 128, for images 10 or one per class.
        augment: Tables with exact inference: whether the student follows its guide also at rows recombined from two
            training rows, column by column. Images: True for random crops and mirror images at every step, "crop" for
            crops alone; with exact inference the guide sees the images as they are. A Dataset or DataLoader of images
            augments its own. "auto" is True for tables, "crop" for images with exact inference, False otherwise.
        views: How images are looked at when they are predicted; probabilities are the mean over the views. "plain": as
            they are; "mirrored": the image and its mirror image; "shifted": both, each also shifted to all four sides
            by a sixteenth of its size, ten views in all. It may be changed after ``fit``.
        dtype: "auto" (float64; for images float32 networks, trained in bfloat16 where that is faster, under float64
            algebra), "float32" or "float64".
        callbacks: As for `GDKLRegressor`; trial fits call them, too.

    Attributes after ``fit``:
        ``beta_``: Weight of the guide that training had.
        ``guide_share_``: Weight of the guides that predictions have.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> m = GDKLClassifier(n_iter=50, random_state=0).fit(X[::3], y[::3])
        >>> m.predict_proba(X).shape
        (150, 3)
        >>> bool(m.score(X, y) > 0.9)
        True
    """

    _method: ClassVar[str] = "gdkl"
    _has_sparse: ClassVar[bool] = True
    _likelihoods: ClassVar[tuple[str, ...]] = (AUTO, *ClassLikelihood)

    beta: float | None = None
    likelihood: str = AUTO
    guide: GuideKernel | str | None = None
    guide_share: float | str | None = None
    augment: bool | str = "auto"

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        preset = plan.preset
        if self._is_stack():
            return self._fit_stack(data, plan)
        usual = _Trust(float(preset.beta), preset.guide_share)
        if not preset.try_less_guide:
            return self._fit_guided(data, self._guide_for(data, plan), plan, usual)
        trust, interrupted = self._select_trust(data, plan, usual)
        return interrupted or self._fit_guided(data, self._guide_for(data, plan), plan, trust)

    def _is_stack(self) -> bool:
        """Whether an exact fit gives a stack of models: tables do."""
        return self.likelihood == AUTO and isinstance(self.kind_, TableKind) and self._may_calibrate()

    def _networks(self) -> int:
        return (FOLDS if self._is_stack() else 1) * super()._networks()

    def _fit_stack(self, data: ClassData, plan: Plan) -> Fit:
        preset = plan.preset
        fitted = fit_stacked_classes(
            data,
            self._choose_kernel(data, plan),
            plan.options(data.n),
            beta=float(preset.beta),
            times=plan.members,
            rows_per_step=preset.batch_size or None,
            recombined=plan.augmentation.recombine,
            groups=plan.column_groups(),
            guide_share=None if isinstance(preset.guide_share, str) else float(preset.guide_share),
        )
        return Fit(fitted.stack.models[STUDENT], fitted.stack, fitted.temperature, float(preset.beta))

    def _guide_for(self, data: ClassData, plan: Plan) -> Guide:
        scale = plan.preset.guide_scale
        return self._fit_guide(data, plan, None if isinstance(scale, str) else float(scale))

    def _select_trust(self, data: ClassData, plan: Plan, usual: _Trust) -> tuple[_Trust, Fit | None]:
        """How far held-out images say that the guide is to be trusted, or a trial that the user interrupted."""
        labels = to_numpy(data.labels[0]).astype(np.int64)
        if np.unique(labels, return_counts=True)[1].max() < 2:
            return usual, None
        held_out, used = (index.to(data.rows.device) for index in hold_out_stratified(labels, plan.seed))
        if len(held_out) < _FEWEST_HELD_OUT:
            return usual, None
        part, rows = data.take(used), data.rows[:, held_out]
        guide = self._guide_for(part, plan)
        scores: dict[_Trust, float] = {}
        finished: Fit | None = None
        for beta in (usual.beta, _LESS * usual.beta):
            fit = self._fit_guided(part, guide, plan, _Trust(beta, usual.share))
            if (interrupted := interrupted_trial(fit, finished)) is not None:
                return usual, interrupted._replace(beta=usual.beta)
            finished = fit
            tried: dict[float | str, Fit] = {usual.share: fit}
            if isinstance(usual.share, str):
                tried[0.0] = fit._replace(stack=None)
            for share, one in tried.items():
                log_probs = torch.log_softmax(self._log_probs(one, rows, plan.seed)[0] / fit.temperature, dim=0)
                own = data.labels[:, held_out].to(log_probs.device)
                scores[_Trust(beta, share)] = float(log_probs.gather(0, own).sum())
        return select(scores, usual), None

    def _fit_guided(self, data: ClassData, guide: Guide, plan: Plan, trust: _Trust) -> Fit:
        """Exact inference with a given trust in the guide."""
        preset = plan.preset
        model = fit_gdkl_classes(
            data.repeat(plan.members),
            guide,
            plan.options(data.n),
            beta=trust.beta,
            start_at_guide=preset.start_at_guide,
            stratified=preset.stratified,
            rows_per_step=preset.batch_size or None,
            recombined=plan.augmentation.recombine,
            symmetric=preset.symmetric_splits and self._likelihood is ClassLikelihood.DIRICHLET,
        )
        trusted = plan.kind.trusts(guide, data.outputs)
        temperature = 1.0
        if preset.calibrate and trusted:
            temperature = self._left_out_temperature(guide.left_out(), plan.seed)
        share = _GUIDE_SHARES[trusted] if isinstance(trust.share, str) else float(trust.share)
        if trust.beta == 0 and self.guide_share is None:
            share = 0.0
        if not share:
            return Fit(model, None, temperature, trust.beta)
        weights = torch.tensor([[share], [1 - share]], dtype=torch.float64)
        return Fit(model, Stack({"guide": fit_nngp(data, guide), STUDENT: model}, weights), temperature, trust.beta)

    def _fit_sparse(self, source: BatchSource, n_classes: int, plan: Plan) -> Fit:
        preset = plan.preset
        if self.guide_share:
            raise OptionError(
                f"guide_share={self.guide_share!r} needs exact inference, as with inducing points no guide has seen "
                "all rows: leave it at None, or use inference='exact'."
            )
        batch = source.sample(subset_size(source.rows), plan.seed)
        subset = ClassData.make(batch.rows[None], batch.targets[None], n_classes, self._likelihood, plan.algebra)
        guide = self._guide_for(subset, plan).for_batches(label_noise=bool(preset.label_noise))
        if plan.kind.fixed_rows and isinstance(source, TensorBatches):
            # Rows that have positions are asked about once, ahead; those of a loader by half batches.
            guide = guide.precompute_marginals(source.take_pair, source.rows, plan.seed, plan.algebra)
        model = fit_sparse_gdkl_classes(source, guide, plan.options(source.rows), beta=preset.beta)
        return Fit(model, beta=float(preset.beta))

    def _adopt(self, fit: Fit) -> None:
        super()._adopt(fit)
        if fit.beta is not None:
            self.beta_ = fit.beta


class DKLClassifier(StudentClassifier):
    """Deep kernel learning of classes by evidence: the classic, which overfits small data. For comparison.

    Its options are those of `GDKLClassifier`, without the guide; ``augment`` is False by default. With
    ``Preset(calibrate=True)`` a temperature is fitted on a held-out fifth of the rows before the fit to all.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> DKLClassifier(n_iter=20, random_state=0).fit(X, y).predict(X).shape
        (150,)
    """

    _method: ClassVar[str] = "dkl"
    _has_sparse: ClassVar[bool] = True

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        if plan.preset.calibrate:
            return self._fit_twice(data, plan)
        return Fit(fit_dkl_classes(data.repeat(plan.members), plan.options(data.n)))

    def _fit_sparse(self, source: BatchSource, n_classes: int, plan: Plan) -> Fit:
        options = plan.options(source.rows)
        weight = float(plan.preset.kl_weight)
        model = fit_sparse_dkl_classes(source, n_classes, options, likelihood=self._likelihood, kl_weight=weight)
        return Fit(model)


@dataclass(kw_only=True, eq=False, repr=False)
class NNGPClassifier(CommonOptions, GuidedClassifier):
    """The guide alone: one Gaussian process per class with the kernel of an infinitely wide network.

    Options are as for `GDKLClassifier`. ``Preset(calibrate=True)`` fits a temperature to leave-one-out predictions; not
    by default, as published.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> bool(NNGPClassifier(random_state=0).fit(X, y).score(X, y) > 0.9)
        True
    """

    _method: ClassVar[str] = "nngp"

    likelihood: str = "dirichlet"
    guide: GuideKernel | str | None = None
    views: str = "plain"
    preset: Preset | str | None = None

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        guide = self._fit_guide(data, plan)
        temperature = 1.0
        if plan.preset.calibrate:
            temperature = self._left_out_temperature(guide.left_out(), plan.seed)
        return Fit(fit_nngp(data, guide), temperature=temperature)


@dataclass(kw_only=True, eq=False, repr=False)
class NNClassifier(NetworkOptions, ClassifierBase):
    """The same network with a softmax head, trained on the cross-entropy of all rows. For comparison.

    Its options are those of `DKLClassifier` that a network has; ``feature_net`` gets a linear layer to the classes.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> NNClassifier(n_iter=50, random_state=0).fit(X, y).predict_proba(X).shape
        (150, 3)
    """

    _method: ClassVar[str] = "nn"

    augment: bool | str = False
    views: str = "plain"

    def _fit_exact(self, data: ClassData, plan: Plan) -> Fit:
        if plan.preset.calibrate:
            return self._fit_twice(data, plan)
        return Fit(fit_nn_classes(data.repeat(plan.members), plan.options(data.n)))
