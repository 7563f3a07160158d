"""Predictive distributions: what every model returns and every metric and plot takes."""

from gdkl.predictive.gaussian import FloatArray, Predictive

__all__ = ["FloatArray", "Predictive"]
