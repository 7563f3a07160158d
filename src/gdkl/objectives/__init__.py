"""Objectives: pure functions from two marginals and the targets to a scalar and its named terms."""

from gdkl.objectives.gaussian import (
    ObjectiveValue,
    distillation,
    expected_negative_log_likelihood,
    gaussian_kl,
    guided,
    marginal_likelihood,
    negative_log_predictive,
    predictive,
)

__all__ = [
    "ObjectiveValue",
    "distillation",
    "expected_negative_log_likelihood",
    "gaussian_kl",
    "guided",
    "marginal_likelihood",
    "negative_log_predictive",
    "predictive",
]
