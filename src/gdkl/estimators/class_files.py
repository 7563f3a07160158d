"""What a model file holds of a classifier beside what every estimator has: classes, temperature, images, its guide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from gdkl import infinite
from gdkl.estimators.class_inputs import ImageScaler, TableScaler
from gdkl.numerics import ModelFileError

if TYPE_CHECKING:
    from gdkl.estimators.classifier_base import ClassifierBase


def pack_classifier(estimator: ClassifierBase, header: dict[str, Any]) -> None:
    """Add a classifier's own parts to what is saved."""
    scaler = estimator.scaler_
    report: pd.DataFrame | None = getattr(estimator, "guide_report_", None)
    guide = getattr(estimator, "guide_", None)
    header["classifier"] = {
        "classes": _pack_labels(estimator.classes_),
        "temperature": estimator.temperature_,
        "sampling_seed": estimator.sampling_seed_,
        "image_shape": None if estimator.image_shape_ is None else list(estimator.image_shape_),
        "integers": scaler.integers if isinstance(scaler, ImageScaler) else None,
        "unit": scaler.unit if isinstance(scaler, ImageScaler) else None,
        "guide_report": None if report is None else report.to_dict("split", index=False),
        "guide": guide.to_spec() if isinstance(guide, infinite.InfiniteNetwork) else None,
    }


def _pack_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON with the type that they had."""
    kind = classes.dtype.kind
    if kind not in "iufbUO" or not all(isinstance(label, (bool, int, float, str)) for label in classes.tolist()):
        raise ModelFileError(
            f"labels of type {classes.dtype} cannot be saved: fit with labels that are numbers, strings or booleans."
        )
    return {"dtype": "object" if kind == "O" else classes.dtype.str, "labels": classes.tolist()}


def unpack_scaler(tensors: dict[str, Tensor], header: dict[str, Any]) -> TableScaler | ImageScaler:
    """The scaler of a classifier."""
    own = header["classifier"]
    mean, std = (tensors[f"scaler.{name}"].cpu().numpy() for name in ("mean", "std"))
    if own["image_shape"] is None:
        return TableScaler(mean, std, tensors["scaler.kept"].cpu().numpy())
    return ImageScaler(mean, std, bool(own["integers"]), bool(own["unit"]))


def unpack_classifier(estimator: Any, header: dict[str, Any]) -> tuple[int, float]:
    """Set a classifier's own attributes.

    Returns:
        The seed of its samples and its temperature.
    """
    own = header["classifier"]
    labels = own["classes"]
    estimator.classes_ = np.asarray(labels["labels"], dtype=np.dtype(labels["dtype"]))
    estimator.image_shape_ = None if own["image_shape"] is None else tuple(own["image_shape"])
    if own["guide_report"] is not None:
        estimator.guide_report_ = pd.DataFrame(**own["guide_report"])
    if own["guide"] is not None:
        estimator.guide_ = infinite.from_spec(own["guide"])
    elif "guide" in header["options"]:
        estimator.guide_ = estimator.guide
    return int(own["sampling_seed"]), float(own["temperature"])
