"""The classifier that the library is about: a deep kernel a class, with a guide."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel

from gdkl.estimators.class_inputs import ImageScaler, TableScaler
from gdkl.estimators.classifier_base import AnyModel, hold_out, rows_of, trial_that_is_all
from gdkl.estimators.common import to_numpy
from gdkl.estimators.guided_classifier import GuidedClassifier
from gdkl.estimators.parts import FeatureNet
from gdkl.estimators.sparse_classes import class_subset
from gdkl.estimators.student_classifier import StudentClassifier, check_augment
from gdkl.estimators.validation import check_number
from gdkl.gp import ClassLikelihood
from gdkl.guide import Guide, GuideKernel
from gdkl.methods import ClassData, FittedModel, fit_gdkl_classes, fit_nngp_classes, fit_sparse_gdkl_classes, image_beta
from gdkl.numerics import OptionError
from gdkl.training import BatchSource, Callback, StepReport, TensorBatches

_AUTO = "auto"

#: Weight of the guide of tables, of few images, and before the part that counts with inducing points is taken.
BETA = 3.0

#: Part of ``beta`` that counts with inducing points: of images three become the paper's 0.1, of tables 0.001. There a
#: student learns from far more rows than its guide, which is to steady it and not to hold it back: docs/method.md.
SPARSE_SHARE, SPARSE_TABLE_SHARE = 1 / 30, 1 / 3000

#: Share of the guide's own probabilities in predictions of tables, chosen on splits that are in no table of results;
#: docs/method.md has the figures.
TABLE_GUIDE_SHARE = 0.75

#: The same for images, on draws that are in no table of results: of a guide that knows little, and of one that knows
#: enough to set the temperature as well.
IMAGE_GUIDE_SHARES = (0.25, 0.5)

#: A guide of images knows enough if it knows this part of what there is to know of held-out labels: one minus their
#: negative log-likelihood over that of a guess. Photographs are below, pictures of clothes and digits above.
_ENOUGH = 0.25

#: Beside the usual weight of the guide of images, this part of it is tried on a held-out fifth of them. Some images a
#: network understands at once and an infinite one hardly at all: there a guide must not hold its student back.
LESS = 1 / 30

#: How much more probable held-out labels must be for anything but the usual, in nats, and the fewest that can tell.
_PREFERENCE = 2.0
_FEWEST_HELD_OUT = 10

#: Scale of the default guide that students of images follow, whatever their number: docs/method.md.
IMAGE_GUIDE_SCALE = 64.0

#: Rows of a table that take part in a step of guided training: more make a step of many classes slow, and no better.
_ROWS_A_STEP = 256


class _Trust(NamedTuple):
    """How far a guide is trusted.

    Attributes:
        beta: Weight of the guide in training.
        share: Its share in predictions; None for the usual one.
    """

    beta: float
    share: float | None


class GDKLClassifier(StudentClassifier, GuidedClassifier):
    """Guided deep kernel learning of classes: features of a network, one exact Gaussian process a class over them.

    Args:
        beta: Weight of the guide: 0 trusts the labels alone, large values imitate the guide. "auto" for 3, or less for
            many images with exact inference: 800 over their number. With exact inference both are twice as much where
            ``augment`` alters the images, and a thirtieth if a held-out fifth of them is better off with it, which
            takes two fits to four fifths of the images before the one to all; a number takes one. With inducing points
            a thirtieth of 3, or of the number, counts for images: the paper's 0.1; and for tables a 3000th. See
            ``beta_``.
        n_iter: Gradient steps; each sees a fresh random split of the rows.
        likelihood: "dirichlet", or "gaussian" for a regression on ±1 a class.
        guide: The honest model that guides: None for an infinite network of three hidden ReLU layers, "auto" for a
            small search over infinite networks (see ``guide_report_``), any `gdkl.infinite` network, any GPyTorch
            kernel, or a function ``k(x1, x2)``. It sees scaled rows; a dense network or a GPyTorch kernel sees images
            flat.
        guide_scale: Output scale of the guide over a Gram of mean diagonal one; None to have it chosen by how well
            the guide predicts held-out labels, or for 64 with images, exact inference and the default guide: there the
            student's best scale is the same for 50 and for 800 images, where the guide's own falls from 1000 to 16.
        guide_share: Share w of the guide's own probabilities in predictions: (1 − w) times the student's and w times
            the guide's, which is asked at the scale where it predicts best. 0 is the student alone, 1 the guide. None
            for 0.75 on tables; for images 0.5 if the guide knows at least a quarter of what a guess leaves open of
            held-out labels, 0.25 if it does not, none if held-out images are better off without (``beta="auto"``); and
            0 with ``beta=0`` and with inducing points, where no guide has
            seen all rows and more than 0 is refused. Latent functions are the student's in any case.
        feature_net: None for d-100-100-100-20 with ReLU, and for images a wide ResNet of depth 10 and factor 2, or 28
            and 5 with inducing points on a GPU. Or a list of widths, a `torch.nn.Module` (copied), or a function from
            the number of columns, or of channels, to one.
        base_kernel: Any GPyTorch kernel over the features; None for a scaled RBF.
        inference: "exact": all rows at every step. "sparse": inducing points, batches and a softmax over sampled
            latents in place of the Dirichlet likelihood, for any number of rows. "auto": exact while it fits in memory
            and its matrices take at most ten minutes here, or up to 2000 rows; see ``inference_``.
        n_inducing: Number of inducing points of sparse inference; None for 128, for images 10 or one a class.
        batch_size: Rows a step, half of which inform the guide about the others. None for 256 rows of a table and all
            images; 512 and 256 with inducing points.
        n_members: Members of a deep ensemble that shares one guide; probabilities are their mean.
        calibrate: "loo" divides log probabilities by a temperature at which the guide alone suits the label of each row
            given those of all others. The guide has learned no features from the labels, so that this is honest, and
            it costs a step or two. "temperature" takes one that suits a held-out fifth of the rows; the model itself
            is then fitted to all of them. It doubles the time. None leaves probabilities as they are. With inducing
            points nothing is left out one by one: "loo" then keeps 5 % of the rows (200 to 2000) from training and
            takes the temperature that suits them; of fewer than 1000 rows, and of a Dataset, DataLoader or list of
            batches, it keeps none and leaves probabilities as they are. Labels are the same for any temperature.
            "auto" is "loo"; for images with exact inference only if the guide knows as much as half a share in
            predictions takes (see ``guide_share``), and None otherwise.
        augment: Tables with exact inference: whether the student follows its guide also on rows put together from two
            training rows, column by column, which takes no labels. Images: True for random crops and mirror images at
            every step, "crop" for crops alone, for what has a left and a right; with exact inference the guide speaks
            of the images as they are. A Dataset or DataLoader of images alters its own. "auto" is True for tables,
            "crop" for images with exact inference and False for images with inducing points.
        views: How images are looked at when they are predicted; probabilities are the mean over the views. "plain": as
            they are; "mirrored": the image and its mirror image, for what may as well look to the other side;
            "shifted": both, each also shifted to all four sides by a sixteenth of its size or a pixel, ten views in
            all. Costs that many times the time of a prediction, and no training: it may be changed after ``fit``. For
            images alone.
        tol: Stop when the smoothed objective has improved by less than this for ``patience`` steps.
        patience: See ``tol``.
        optimizer: "adam", "sgd", or "auto": gradient descent for images that a step has all of, as published, Adam
            otherwise.
        momentum: Of gradient descent.
        learning_rate: Falls tenfold at 60 % and 80 % of the steps.
        weight_decay: On the network's weights.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".
        dtype: "auto" (float64; for images float32 networks, trained in bfloat16 where that is faster, under float64
            algebra), "float32" or "float64".
        random_state: Seed of weights, splits, sampled latents and of the order in which a DataLoader shuffles; two fits
            with one seed are equal, unless the loader draws from a generator of its own.
        verbose: 1 shows progress on standard error.
        callbacks: Functions that take a `gdkl.training.StepReport` after each step, or `gdkl.training.Callback`
            objects; a true answer ends training. Trial fits (``beta``, ``calibrate``) call them, too.
        checkpoint_dir: Folder in which sparse inference keeps its state every half minute, the last two of it. The same
            fit, started again with the same options, data and ``random_state`` (which must be given), goes on from
            there, to the same model; ``history_`` then begins at that step. Files are removed when the fit has ended. A
            loader whose batches are not those of before is told of by a `gdkl.training.CheckpointWarning`.

    Attributes after ``fit``:
        beta_: Weight of the guide that training had.
        guide_share_: Share of the guide's own probabilities that predictions have.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> m = GDKLClassifier(n_iter=50, random_state=0).fit(X, y)
        >>> m.predict_proba(X).shape
        (150, 3)
        >>> bool(m.score(X, y) > 0.9)
        True
    """

    beta_: float
    guide_share_: float
    _augments_tables: ClassVar[bool] = True
    _calibrations: ClassVar[tuple[str, ...]] = ("temperature", "loo", _AUTO)

    def __init__(
        self,
        *,
        beta: float | str = _AUTO,
        n_iter: int = 500,
        likelihood: str = "dirichlet",
        guide: GuideKernel | str | None = None,
        guide_scale: float | None = None,
        guide_share: float | None = None,
        feature_net: FeatureNet = None,
        base_kernel: Kernel | None = None,
        inference: str = "auto",
        n_inducing: int | None = None,
        batch_size: int | None = None,
        n_members: int = 1,
        calibrate: str | None = "auto",
        augment: bool | str = "auto",
        views: str = "plain",
        tol: float | None = None,
        patience: int | None = None,
        optimizer: str = "auto",
        momentum: float = 0.9,
        learning_rate: float = 1e-2,
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
        self.likelihood = likelihood
        self.guide = guide
        self.guide_scale = guide_scale
        self.guide_share = guide_share
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

    def _check_options(self) -> None:
        super()._check_options()
        if not (isinstance(self.beta, str) and self.beta == _AUTO):
            try:
                check_number("beta", self.beta, low=0, strict=False)
            except OptionError:
                raise OptionError(
                    f"beta={self.beta!r} is not allowed: use a number of at least 0, or 'auto'."
                ) from None
        if self.guide_scale is not None:
            check_number("guide_scale", self.guide_scale, low=0, strict=True)
        if self.guide_share is not None:
            try:
                check_number("guide_share", self.guide_share, low=0, strict=False)
                check_number("guide_share", 1 - self.guide_share, low=0, strict=False)
            except OptionError:
                raise OptionError(
                    f"guide_share={self.guide_share!r} is not allowed: use a number from 0 to 1."
                ) from None
        check_augment(self.augment, _AUTO)
        self._check_guide()

    def _fit_model(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        table = self.image_shape_ is None
        if (batches := self._in_batches(data, seed, guided=True, rows_a_step=self._rows_a_step())) is not None:
            return replace(self._fit_sparse(batches[0], data.outputs, seed, callbacks), held_out=batches[1])
        if table or self.beta != _AUTO:
            return self._fit_guided(data, seed, callbacks, self._usual())
        trust, model = self._try_on_held_out(data, seed, callbacks)
        return model or self._fit_guided(data, seed, callbacks, trust)

    def _usual(self, n_images: int | None = None) -> _Trust:
        """How far the guide is trusted where nothing is tried."""
        if self.beta != _AUTO:
            return _Trust(float(self.beta), self.guide_share)
        beta = BETA if n_images is None else image_beta(n_images, augmented=self._alters_images())
        return _Trust(beta, self.guide_share)

    def _try_on_held_out(
        self, data: ClassData, seed: int, callbacks: Sequence[Callback]
    ) -> tuple[_Trust, FittedModel | None]:
        """How far held-out images say that the guide is to be trusted.

        Returns:
            What to fit all images with, and a model of some if the user interrupted the trials: then that is all.
        """
        usual = self._usual(data.n)
        labels = to_numpy(data.labels[0]).astype(np.int64)
        if np.unique(labels, return_counts=True)[1].max() < 2:
            return usual, None
        kept, held_out = hold_out(labels, seed)
        if len(held_out) < _FEWEST_HELD_OUT:
            return usual, None
        part, rows = rows_of(data, kept), data.rows[:, held_out]
        scores: dict[_Trust, float] = {}
        finished: FittedModel | None = None
        for beta in (usual.beta, LESS * usual.beta):
            model = self._fit_guided(part, seed, callbacks, _Trust(beta, usual.share))
            if (interrupted := trial_that_is_all(model, finished)) is not None:
                self.beta_ = usual.beta
                return usual, interrupted
            finished = model
            temperature = 1.0
            if model.left_out is not None:
                temperature = self._left_out_temperature(model.left_out, seed)
            tried = {usual.share: model}
            if usual.share is None:
                tried[0.0] = replace(model, guide=None, guide_share=0.0)
            for share, one in tried.items():
                log_probs = torch.log_softmax(self._log_probs(one, rows, seed)[0] / temperature, dim=0)
                own = data.labels[:, held_out].to(log_probs.device)
                scores[_Trust(beta, share)] = float(log_probs.gather(0, own).sum())
        best = max(scores, key=scores.__getitem__)
        return (best if scores[best] > scores[usual] + _PREFERENCE else usual), None

    def _fit_guided(self, data: ClassData, seed: int, callbacks: Sequence[Callback], trust: _Trust) -> FittedModel:
        """Exact inference with a given trust in the guide."""
        table = self.image_shape_ is None
        scale = self.guide_scale
        if scale is None and self.guide is None and not table:
            scale = IMAGE_GUIDE_SCALE
        guide = self._fit_guide(data, seed, scale)
        options = self._student_options(data, seed, callbacks)
        model = fit_gdkl_classes(
            data.repeat(self.n_members),
            guide,
            options,
            beta=trust.beta,
            # Images: as published. What these two gain on tables they do not gain there.
            start_at_guide=table,
            stratified=table,
            rows_a_step=self._rows_a_step(),
            recombined=table and bool(self.augment),
            # Of images the network's pass is what takes time, and both halves share it.
            both_ways=not table and self._likelihood is ClassLikelihood.DIRICHLET,
        )
        knowing = table or _knows_enough(guide, data.outputs)
        if self.calibrate == "loo" or (self.calibrate == _AUTO and knowing):
            model.left_out = guide.left_out()
        if share := self._share_of_guide(trust, knowing):
            model.guide, model.guide_share = fit_nngp_classes(data, guide), share
        self.beta_ = trust.beta
        return model

    def _rows_a_step(self) -> int | None:
        return _ROWS_A_STEP if self.batch_size is None and self.image_shape_ is None else self.batch_size

    def _share_of_guide(self, trust: _Trust, knowing: bool) -> float:
        if trust.share is not None:
            return float(trust.share)
        if trust.beta == 0:
            return 0.0
        return TABLE_GUIDE_SHARE if self.image_shape_ is None else IMAGE_GUIDE_SHARES[knowing]

    def _adopt(
        self, model: AnyModel, scaler: TableScaler | ImageScaler, sampling_seed: int, temperature: float
    ) -> None:
        super()._adopt(model, scaler, sampling_seed, temperature)
        self.guide_share_ = model.guide_share if isinstance(model, FittedModel) else 0.0

    def _fit_sparse(self, source: BatchSource, n_classes: int, seed: int, callbacks: Sequence[Callback]) -> FittedModel:
        self._refuse_to_alter_a_loader(source)
        if self.guide_share:
            raise OptionError(
                f"guide_share={self.guide_share!r} needs exact inference, as with inducing points no guide has seen "
                "all rows: leave it at None, or use inference='exact'."
            )
        subset = class_subset(source, n_classes, self._likelihood, self._precisions()[1], seed)
        guide = self._fit_guide(subset, seed, self.guide_scale).for_batches()
        options = self._sparse_student(subset, source, seed, callbacks)
        share = SPARSE_SHARE
        if self.image_shape_ is None:
            share = SPARSE_TABLE_SHARE
            if isinstance(source, TensorBatches):
                # Rows that can be had by number are asked about once, ahead; those of a loader by half batches.
                guide = guide.precompute_marginals(source.take_pair, source.rows, seed, options.algebra)
        self.beta_ = share * self._usual().beta
        return fit_sparse_gdkl_classes(source, guide, options, beta=self.beta_)


def _knows_enough(guide: Guide, n_classes: int) -> bool:
    """Whether the guide predicts held-out labels well enough to be trusted as much as its student."""
    return float(guide.score.mean()) > (_ENOUGH - 1) * math.log(n_classes)
