"""Objectives: pure functions from two marginals and the targets to a scalar and its named terms."""

from gdkl.objectives.classes import cross_entropy, guided_classes, sampled_log_likelihood
from gdkl.objectives.gaussian import (
    GuidedTerms,
    ObjectiveValue,
    distillation,
    expected_negative_log_likelihood,
    gaussian_kl,
    guided,
    guided_terms,
    marginal_likelihood,
    negative_log_predictive,
    predictive,
)
from gdkl.objectives.sparse import (
    SOFTMAX_SAMPLES,
    evidence_bound,
    expected_log_softmax,
    guided_softmax,
    softmax_evidence_bound,
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
    "guided",
    "guided_classes",
    "guided_softmax",
    "guided_terms",
    "marginal_likelihood",
    "negative_log_predictive",
    "predictive",
    "sampled_log_likelihood",
    "softmax_evidence_bound",
]
