"""Predictive distributions: what every model returns and every metric and plot takes."""

from gdkl.predictive.classes import ClassPredictive, class_index
from gdkl.predictive.gaussian import Predictive
from gdkl.predictive.joint import joint_moments
from gdkl.predictive.mixture import FloatArray
from gdkl.predictive.views import Views, count_views, image_views, mean_over_views

__all__ = [
    "ClassPredictive",
    "FloatArray",
    "Predictive",
    "Views",
    "class_index",
    "count_views",
    "image_views",
    "joint_moments",
    "mean_over_views",
]
