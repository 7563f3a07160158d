"""Classifiers with inducing points: their guide from a subset of the rows, and labels that a loader yields."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gdkl.estimators.class_inputs import ImageScaler, TableScaler, refuse_channels_last
from gdkl.estimators.loaders import FirstPass, read_pair
from gdkl.gp import ClassLikelihood
from gdkl.guide import subset_size
from gdkl.methods import ClassData
from gdkl.numerics import DataError
from gdkl.training import BatchSource, LoaderBatches

if TYPE_CHECKING:
    from gdkl.estimators.classifier_base import ClassifierBase

#: Inducing points (or one a class, if that is more) and images a batch, where the user does not say.
IMAGE_POINTS = 10
IMAGE_BATCH = 256

#: The largest value of an integer pixel, which becomes one.
_PIXEL = 255


def class_subset(
    source: BatchSource, n_classes: int, likelihood: ClassLikelihood, algebra: torch.dtype, seed: int
) -> ClassData:
    """Some of the rows, for the guide's scale."""
    batch = source.sample(subset_size(source.rows), seed)
    return ClassData.make(batch.rows[None], batch.targets[None], n_classes, likelihood, algebra)


def held_out_labels(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Positions of about so many rows for a temperature, and of the others: no class is without a row to learn from.

    Args:
        labels: Class numbers, ``(n,)``.
        count: How many.
        seed: Of the choice.

    Example:
        >>> kept, used = held_out_labels(torch.tensor([0, 0, 0, 0, 0, 1]), 3, seed=0)
        >>> len(kept) + len(used), 5 in used
        (6, True)
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    kept, used = order[:count], order[count:]
    learned = torch.isin(labels[kept], labels[used])
    return kept[learned], torch.cat([used, kept[~learned]]).sort().values


def read_class_loader(estimator: ClassifierBase, told: FirstPass) -> TableScaler | ImageScaler:
    """Set what an estimator remembers of its inputs, and learn their scales, from a first pass over a loader."""
    if told.labels is None or len(told.labels) < 2:
        raise DataError("the loader yields one class only: a classifier needs rows of at least two classes.")
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.classes_ = told.labels
    estimator.n_features_in_ = prod(told.row_shape)
    mean, std, varies = told.x_moments.scales()
    if len(told.row_shape) == 1:
        estimator.image_shape_ = None
        if not bool(varies.any()):
            raise DataError("every column of x is constant: nothing can be learned from it; give columns that vary.")
        return TableScaler(mean[varies], std[varies], varies)
    refuse_channels_last(told.row_shape)
    estimator.image_shape_ = told.row_shape
    integers = told.X.dtype.kind in "iub"
    unit = _PIXEL if integers else 1
    low, high = float(told.X.min()) / unit, float(told.X.max()) / unit
    return ImageScaler(mean / unit, std / unit, integers, unit=low >= 0 and high <= 1.5)


def class_loader(
    loader: Iterable[Any],
    told: FirstPass,
    scaler: TableScaler | ImageScaler,
    classes: NDArray[Any],
    device: torch.device,
    network: torch.dtype,
) -> LoaderBatches:
    """Batches of a loader of labelled rows or images, scaled."""

    def scaled(X: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
        if isinstance(scaler, ImageScaler):
            images = (X / _PIXEL if X.dtype.kind in "iub" else X).astype(np.float32)
            rows: NDArray[Any] = scaler.rows(images)
        else:
            rows = scaler.rows(np.asarray(X, dtype=np.float64))
        index = np.searchsorted(classes, y)
        if not bool((classes[np.minimum(index, len(classes) - 1)] == y).all()):
            raise DataError("the loader yields labels that were not there when it was first gone through.")
        return torch.as_tensor(rows).to(device=device, dtype=network), torch.as_tensor(index).to(device)

    def convert(item: Any) -> tuple[Tensor, Tensor]:
        return scaled(*read_pair(item, None, labels=True, row_shape=told.row_shape, y_shape=told.y_shape))

    return LoaderBatches(loader, convert, told.rows, max(2, told.batch_size), scaled(told.X, told.y))
