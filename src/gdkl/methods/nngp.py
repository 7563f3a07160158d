"""The NNGP alone: the guide as a model of its own."""

from __future__ import annotations

from torch import nn

from gdkl.guide import Guide
from gdkl.training import FittedModel, TrainingData


def fit_nngp(data: TrainingData, guide: Guide) -> FittedModel:
    """Condition a fitted guide on all rows; the kernel sees the rows as they are."""
    history = [
        {
            "step": 1.0,
            "objective": float(-guide.score.mean()),
            "noise": float(guide.noise.mean()),
            "scale": float(guide.scale.mean()),
        }
    ]
    return FittedModel(nn.Identity(), guide.predictor(data.rows), history)
