"""Do the student's features tell rows apart, and does the model know that a far row is far?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gdkl.estimators.diagnostics.evidence import Evidence
from gdkl.estimators.diagnostics.finding import Finding, Severity
from gdkl.gp import GPyTorchKernel, squared_distances
from gdkl.inputs import FloatArray
from gdkl.nets import ColumnScale, Members
from gdkl.training import FittedModel

#: Rows that distances and ranks are taken of: their spread is known to a few per cent.
_ROWS = 500

#: Lengthscales between typical rows from which on a kernel connects nothing: exp(−3² / 2) is 0.01.
_APART = 3.0

#: Directions below which features have collapsed, as a part of those of the columns and at most. Students of GDKL on
#: imports85, boston, titanic and linear functions have 1.6 and more, those of an overfitted DKL 1.1.
_FEW, _FEWEST = 0.5, 1.3

#: Probability from which on the variance of the function tells a row far out from one that is not.
_KNOWS = 0.8

#: How far out rows are asked about: so many times as far from the mean as nearly all of the held-out rows.
_OUT, _NEARLY_ALL = 3.0, 0.95


class FeatureSpread(NamedTuple):
    """How a student's features spread: over members and outputs the worst.

    Attributes:
        rank: Effective rank, the exponential of the entropy of the variances along principal axes.
        distance: Median distance between two rows, in lengthscales; NaN for a kernel that has no one lengthscale.
    """

    rank: float
    distance: float


def feature_spread(model: Any, rows: FloatArray) -> FeatureSpread | None:
    """The spread of a student's features at scaled rows ``(m, d)``; None for a model without a network.

    Args:
        model: A model of the stack.
        rows: Scaled rows.
    """
    embed = getattr(model, "embed", None)
    if not isinstance(model, FittedModel) or not isinstance(embed, Members) or isinstance(embed.template, ColumnScale):
        return None
    some = rows[:: max(1, len(rows) // _ROWS)][:_ROWS]
    features = model.features(torch.as_tensor(some).to(model.noise.device).unsqueeze(0)).double()
    rank = min(effective_rank(member.cpu().numpy()) for member in features)
    kernel = model.posterior.kernel
    parts = kernel.scaled_rbf() if isinstance(kernel, GPyTorchKernel) else None
    if parts is None:
        return FeatureSpread(rank, float("nan"))
    scaled = features.unsqueeze(-3) / parts[1].double()
    above = torch.triu_indices(len(some), len(some), offset=1)
    apart: Tensor = squared_distances(scaled)[..., above[0], above[1]].sqrt()
    return FeatureSpread(rank, float(apart.median(dim=-1).values.max()))


def effective_rank(features: FloatArray) -> float:
    """Of features ``(m, p)``: how many directions they use.

    Example:
        >>> round(effective_rank(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 6)
        2.0
    """
    variances = np.linalg.svd(features - features.mean(axis=0), compute_uv=False) ** 2
    total = variances.sum()
    if not total > 0:
        return 0.0
    share = variances[variances > 0] / total
    return float(np.exp(-(share * np.log(share)).sum()))


def check_features(e: Evidence) -> Finding | None:
    """Whether the student's features have collapsed or fallen apart; None for a model without a student."""
    stack = e.estimator.stack_
    spread = feature_spread(e.estimator.model_, e.rows)
    if spread is None:
        return None
    inputs = effective_rank(e.rows)
    text = f"The student's features use {spread.rank:.1f} directions (the columns {inputs:.1f})"
    if not np.isnan(spread.distance):
        text += f"; two rows are {spread.distance:.1f} lengthscales apart in the median"
    text += "."
    weight = float(stack.weights[-1].mean())
    severity = Severity.WARNING if weight > 0.5 else Severity.NOTE
    more = "" if weight > 0.5 else f" The student has only {100 * weight:.0f} % of the weight."
    if spread.distance > _APART:
        text += f" The kernel connects hardly any two rows: the student knows each on its own.{more}"
        remedy = "Use a guide (GDKL in place of DKL), fewer steps, or a narrower network."
        return Finding("features", severity, text, spread.distance, high=_APART, remedy=remedy)
    if spread.rank < _FEW * inputs and spread.rank < _FEWEST:
        text += f" Rows that differ are the same to it, and intervals need not widen where rows are new.{more}"
        remedy = "Use a guide (GDKL in place of DKL), or fewer steps."
        return Finding("features", severity, text, spread.rank, low=min(_FEWEST, _FEW * inputs), remedy=remedy)
    return Finding("features", Severity.FINE, text, spread.distance, high=_APART)


def check_far_rows(e: Evidence) -> Finding | None:
    """Whether the variance of the function is larger for rows far out; None where there is none, or for images."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (slow to import)

    if e.estimator.kind_.input.image_shape is not None or not isinstance(e.estimator.model_, FittedModel):
        return None
    some = e.rows[:: max(1, len(e.rows) // _ROWS)][:_ROWS]
    length = np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-9)
    outside = some / length * _OUT * np.quantile(length, _NEARLY_ALL)
    near, out = e.latent_variance_at(some), e.latent_variance_at(outside)
    found = float(roc_auc_score(np.repeat([0, 1], len(some)), np.concatenate([near, out])))
    text = (
        f"Rows {_OUT:.0f} times as far from the mean as nearly all have a larger variance of the function with a "
        f"probability of {100 * found:.0f} %."
    )
    if found >= _KNOWS:
        return Finding("far rows", Severity.FINE, text, found, low=_KNOWS)
    text += " The model hardly notices that a row is unlike all it has seen."
    remedy = "Do not trust intervals outside the training range; compare NNGP, whose variance grows there."
    return Finding("far rows", Severity.WARNING, text, found, low=_KNOWS, remedy=remedy)
