"""Several exact fits of one shape trained as one batch: folds of a cross-validation in the time of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import torch
from sklearn.base import clone

from gdkl.estimators.base import Fit
from gdkl.estimators.regression import RegressorBase, training_data
from gdkl.estimators.sources import ArraySource
from gdkl.numerics import DataError, OptionError, resolve_device
from gdkl.training import FittedModel

RegressorT = TypeVar("RegressorT", bound=RegressorBase)


def fit_together(estimator: RegressorT, parts: Sequence[tuple[Any, Any]]) -> list[RegressorT]:
    """Fit one copy of a regressor to each of several tables, all trained as one batch.

    Every copy draws weights and splits of its own; members of an ensemble are trained in the same batch. A stack, which
    trains a batch of its own, is fitted to one table after the other.

    Args:
        estimator: Options of all fits; it is left as it was.
        parts: Rows and targets of each fit, with as many rows and varying columns in each.

    Example:
        >>> import numpy as np
        >>> from gdkl import NNGPRegressor
        >>> X = np.linspace(0, 6, 40).reshape(-1, 1)
        >>> y = np.sin(X[:, 0])
        >>> models = fit_together(NNGPRegressor(), [(X[::2], y[::2]), (X[1::2], y[1::2])])
        >>> [model.predict(X).shape for model in models]
        [(40,), (40,)]
    """
    if estimator.inference == "sparse":
        raise OptionError("fit_together is for exact inference: use inference='exact'.")
    device = resolve_device(estimator.device)
    models = [cast(RegressorT, clone(estimator)) for _ in parts]
    if estimator._is_stack():
        return [model.fit(X, y) for model, (X, y) in zip(models, parts, strict=True)]
    with torch.inference_mode(False), torch.enable_grad():
        sources: list[ArraySource] = []
        for model, (X, y) in zip(models, parts, strict=True):
            model._check_options()
            sources.append(cast(ArraySource, model._read(X, y, 0, False)))
        shapes = {(source.rows, source.kind.input.columns, source.outputs) for source in sources}
        if len(shapes) != 1:
            raise DataError(f"fits that are trained together need one shape of rows and targets; got {sorted(shapes)}.")
        plan = models[0]._plan_exact(sources[0], device)
        joint = cast(FittedModel, models[0]._fit_exact(training_data(sources, plan), plan))
    count = len(models)
    for index, model in enumerate(models):
        # Members are all fits once, and then all again.
        model.inference_ = "exact"
        model._adopt(Fit(joint.select(range(index, joint.members, count))))
    models[0]._end_interrupted(joint.outcome)
    return models
