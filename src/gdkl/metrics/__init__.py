"""Scores of predictions: how good, and how honest about it."""

from gdkl.metrics.regression import coverage, crps, interval_width, log_likelihood, mae, rmse, summary

__all__ = ["coverage", "crps", "interval_width", "log_likelihood", "mae", "rmse", "summary"]
