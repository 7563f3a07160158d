"""From a fitted estimator to an ONNX file."""

from __future__ import annotations

import json
import os
from typing import Any

from gdkl.numerics import ModelFileError


def write_onnx(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator of a table."""
    from gdkl.export import ClassAnswer, classifier_file, regressor_file  # noqa: PLC0415  (seldom used)

    estimator._require_fitted()
    table = estimator.kind_.input
    if table.image_shape is not None:
        raise ModelFileError("ONNX files are of models of tables, and this one is of images: keep it with save(path).")
    notes = {"estimator": type(estimator).__name__}
    if names := getattr(estimator, "target_names_", None):
        notes["targets"] = json.dumps(names)
    if hasattr(estimator, "target_"):
        return regressor_file(path, table, estimator.stack_, estimator.target_, notes)
    notes["classes"] = json.dumps([str(label) for label in estimator.classes_.tolist()])
    answer = ClassAnswer(estimator.classes_, estimator._likelihood, estimator.temperature_, estimator.sampling_seed_)
    return classifier_file(path, table, estimator.stack_, answer, notes)
