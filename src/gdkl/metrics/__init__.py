"""Scores of predictions: how good, and how honest about it."""

from gdkl.metrics.bands import coverage_band, ece_band
from gdkl.metrics.classification import (
    CalibrationBins,
    OodScore,
    Probabilities,
    accuracy,
    brier,
    calibration_bins,
    class_summary,
    ece,
    entropy,
    mce,
    nll,
    ood_auroc,
)
from gdkl.metrics.regression import coverage, crps, interval_width, log_likelihood, mae, rmse, summary
from gdkl.metrics.scorers import crps_scorer, log_likelihood_scorer

__all__ = [
    "CalibrationBins",
    "OodScore",
    "Probabilities",
    "accuracy",
    "brier",
    "calibration_bins",
    "class_summary",
    "coverage",
    "coverage_band",
    "crps",
    "crps_scorer",
    "ece",
    "ece_band",
    "entropy",
    "interval_width",
    "log_likelihood",
    "log_likelihood_scorer",
    "mae",
    "mce",
    "nll",
    "ood_auroc",
    "rmse",
    "summary",
]
