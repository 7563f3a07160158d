"""Predictive distributions: what every model returns and every metric and plot takes."""

from gdkl.predictive.classes import ClassPredictive, class_index
from gdkl.predictive.gaussian import FloatArray, Predictive

__all__ = ["ClassPredictive", "FloatArray", "Predictive", "class_index"]
