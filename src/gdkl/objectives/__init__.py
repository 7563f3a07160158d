"""Objectives: pure functions from two marginals and the targets to a scalar and its named terms."""

from gdkl.objectives.data_terms import (
    SOFTMAX_SAMPLES,
    expected_log_softmax,
    expected_negative_log_likelihood,
    gaussian_term,
    negative_log_predictive,
    predictive_label_term,
    sampled_log_likelihood,
    softmax_term,
)
from gdkl.objectives.objectives import (
    GuidedTerms,
    ObjectiveValue,
    cross_entropy,
    distillation,
    evidence_bound,
    gaussian_kl,
    guided,
    guided_terms,
    kl_term,
    marginal_likelihood,
    predictive,
    weighted_sum,
)

__all__ = [
    "SOFTMAX_SAMPLES",
    "GuidedTerms",
    "ObjectiveValue",
    "cross_entropy",
    "distillation",
    "evidence_bound",
    "expected_log_softmax",
    "expected_negative_log_likelihood",
    "gaussian_kl",
    "gaussian_term",
    "guided",
    "guided_terms",
    "kl_term",
    "marginal_likelihood",
    "negative_log_predictive",
    "predictive",
    "predictive_label_term",
    "sampled_log_likelihood",
    "softmax_term",
    "weighted_sum",
]
