"""Fitted models as ONNX files: columns in, mean and standard deviation or class probabilities out."""

from gdkl.export.answers import ClassAnswer, classifier_file, regressor_file

__all__ = ["ClassAnswer", "classifier_file", "regressor_file"]
