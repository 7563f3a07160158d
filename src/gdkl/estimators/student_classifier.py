"""What classifiers that train a network have in common: GDKL, DKL and the plain network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from gdkl.estimators.classifier_base import ClassifierBase, check_likelihood
from gdkl.estimators.parts import image_network_builder, network_builder
from gdkl.estimators.sparse_classes import IMAGE_BATCH, IMAGE_POINTS, held_out_labels
from gdkl.estimators.student import TABLE_BATCH, TABLE_POINTS, StudentOptions, sparse_precisions
from gdkl.estimators.validation import check_number
from gdkl.gp import softplus_rbf_kernel
from gdkl.methods import ClassData, DeepKernelOptions, held_out_rows
from gdkl.nets import RandomMoves
from gdkl.numerics import OptionError
from gdkl.training import Batch, BatchSource, Callback, ImageBatches, LoaderBatches, TensorBatches

#: ``augment`` for crops without mirror images.
CROP = "crop"

#: Fewer labels than this are too few to spare any for a temperature.
_ROWS_FOR_TEMPERATURE = 1000

#: How far a crop may be off centre, as part of the image's shorter side: four pixels of 32 of many images, as
#: published, and two of few, by which that was measured.
_MARGIN, _MARGIN_OF_FEW = 1 / 8, 1 / 16

_AUTO = "auto"
_OPTIMISERS = (_AUTO, "adam", "sgd")


class StudentClassifier(StudentOptions, ClassifierBase):
    """What GDKL, DKL and the plain network have in common: the student's options."""

    optimizer: str
    momentum: float
    augment: bool | str = False
    _augments_tables: ClassVar[bool] = False

    def _check_options(self) -> None:
        super()._check_options()
        if self.optimizer not in _OPTIMISERS:
            raise OptionError(f"optimizer={self.optimizer!r} is not known: use one of {', '.join(_OPTIMISERS)}.")
        check_number("momentum", self.momentum, low=0, strict=False)
        if self.momentum >= 1:
            raise OptionError(f"momentum={self.momentum!r} is not allowed: use a number below 1.")
        check_likelihood(getattr(self, "likelihood", "dirichlet"))

    def _student_options(self, data: ClassData, seed: int, callbacks: Sequence[Callback]) -> DeepKernelOptions:
        if self.image_shape_ is None:
            build = network_builder(self.feature_net)
        else:
            small = self._all_images_at_once or data.rows.device.type == "cpu"
            moves = None
            if self._all_images_at_once and self._alters_images():
                margin = _margin(self.image_shape_, _MARGIN_OF_FEW)
                moves = RandomMoves(self.image_shape_, margin, mirror=self._mirrors_images())
            dtype = data.targets.dtype
            build = image_network_builder(self.feature_net, self.image_shape_, dtype, small=small, moves=moves)
        options = self._options(seed, callbacks, build)
        if not self._descends:
            return options
        kernel = options.base_kernel
        if kernel is None and self._all_images_at_once:
            kernel = softplus_rbf_kernel()
        return replace(options, momentum=self.momentum, base_kernel=kernel)

    @property
    def _all_images_at_once(self) -> bool:
        """Whether every step has all images, as with exact inference and a plain network."""
        return self.image_shape_ is not None and getattr(self, "inference_", "exact") == "exact"

    @property
    def _descends(self) -> bool:
        """Whether gradient descent takes the place of Adam."""
        return self.optimizer == "sgd" or (self.optimizer == "auto" and self._all_images_at_once)

    def _in_batches(
        self, data: ClassData, seed: int, *, guided: bool, rows_a_step: int | None = None
    ) -> tuple[TensorBatches | ImageBatches, Batch | None] | None:
        """The data in batches, where inducing points are to be used, and rows kept from them for a temperature.

        Args:
            data: All of it.
            seed: Of the order and of what is kept.
            guided: As for `gdkl.methods.exact_cost`.
            rows_a_step: Rows that a step of exact inference would see.
        """
        device, algebra = data.rows.device, data.targets.dtype
        self._refuse_to_alter_a_table()
        if not self._is_sparse(data.n, data.outputs, device, algebra, guided=guided, rows_a_step=rows_a_step):
            return None
        network = self._precisions()[0] if self.image_shape_ is not None else sparse_precisions(self.dtype)[0]
        rows, labels = data.rows[0].to(network), data.labels[0]
        if self.calibrate not in ("loo", "auto") or data.n < _ROWS_FOR_TEMPERATURE:
            return self._batches(rows, labels, seed), None
        kept, used = held_out_labels(labels, held_out_rows(data.n), seed)
        return self._batches(rows[used], labels[used], seed), Batch(rows[kept], labels[kept])

    def _batches(self, rows: Tensor, labels: Tensor, seed: int) -> TensorBatches | ImageBatches:
        if self.image_shape_ is None or not self._alters_images():
            return TensorBatches(rows, labels, self._batch_size(), seed)
        return ImageBatches(
            rows.unflatten(1, self.image_shape_),
            labels,
            self._batch_size(),
            seed,
            device=rows.device,
            margin=_margin(self.image_shape_, _MARGIN),
            flip=self._mirrors_images(),
        )

    def _alters_images(self) -> bool:
        """Whether every step sees its images cropped, and maybe mirrored."""
        if isinstance(self.augment, str) and self.augment == _AUTO:
            return self._all_images_at_once
        return self.image_shape_ is not None and bool(self.augment)

    def _mirrors_images(self) -> bool:
        """Whether half of the images that are altered are mirrored: not by words, which say what else is done."""
        return not isinstance(self.augment, str) and bool(self.augment)

    def _refuse_to_alter_a_table(self) -> None:
        mirrored = self._mirrors_images() and not self._augments_tables
        if self.image_shape_ is None and (mirrored or (isinstance(self.augment, str) and self.augment == CROP)):
            raise OptionError(f"augment={self.augment!r} is for images: a table has nothing to crop or to mirror.")

    def _refuse_to_alter_a_loader(self, source: BatchSource) -> None:
        if self._alters_images() and isinstance(source, LoaderBatches):
            raise OptionError(
                f"augment={self.augment!r} is for images in an array: let the Dataset or DataLoader alter its own."
            )

    def _batch_size(self) -> int:
        size = getattr(self, "batch_size", None)
        return size or (TABLE_BATCH if self.image_shape_ is None else IMAGE_BATCH)

    def _sparse_student(self, data: ClassData, source: BatchSource, seed: int, callbacks: Sequence[Callback]) -> Any:
        """Options of training over batches; ``data`` is some of the rows."""
        points = TABLE_POINTS if self.image_shape_ is None else max(IMAGE_POINTS, data.outputs)
        options = self._student_options(data, seed, callbacks)
        return self._sparse_options(options, source.rows, data.targets.dtype, points=points)


def _margin(image_shape: tuple[int, ...], part: float) -> int:
    """Pixels that are this part of an image's shorter side, one at least."""
    return max(1, round(part * min(image_shape[1:])))


def check_augment(augment: Any, *words: str) -> None:
    """Refuse what is neither a truth value, NumPy's among them, nor "crop" or one of the other words."""
    if isinstance(augment, (bool, np.bool_)) or (isinstance(augment, str) and augment in (CROP, *words)):
        return
    known = ["True", "False", *map(repr, (CROP, *words))]
    raise OptionError(f"augment={augment!r} is not known: use {', '.join(known[:-1])} or {known[-1]}.")
