"""What classifiers with a guide have in common, GDKL and the guide alone: one that is given, or searched for."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gdkl.estimators.classifier_base import ClassifierBase
from gdkl.estimators.parts import guide_kernel
from gdkl.gp import KernelFunction
from gdkl.guide import (
    Guide,
    GuideKernel,
    as_kernel_function,
    fit_class_guide,
    image_guides,
    image_kernel_function,
    search_guides,
    table_guides,
)
from gdkl.methods import ClassData
from gdkl.numerics import OptionError

_AUTO = "auto"


class GuidedClassifier(ClassifierBase):
    """What GDKL and NNGP have in common: a guide, given or searched for.

    Attributes after ``fit``:
        guide_: The guide that was used.
        guide_report_: DataFrame, one row a guide that was tried, the best first: how well it predicts held-out labels,
            at which output scale, and with which share of the labels' own variances.
    """

    guide: Any
    guide_: GuideKernel
    guide_report_: pd.DataFrame

    def _check_guide(self) -> None:
        if isinstance(self.guide, str) and self.guide == _AUTO:
            return
        if isinstance(self.guide, str):
            raise OptionError(f"guide={self.guide!r} is not known: the only word is 'auto'.")
        guide_kernel(self.guide)

    def _fit_guide(self, data: ClassData, seed: int, scale: float | None = None) -> Guide:
        dtype = data.targets.dtype
        report: list[dict[str, Any]] = []
        if isinstance(self.guide, str):
            shape, device = self.image_shape_, data.rows.device
            candidates = table_guides() if shape is None else image_guides(shape, device)
            trials = search_guides(
                candidates,
                data.rows,
                data.labels,
                data.outputs,
                image_shape=shape,
                likelihood=data.likelihood,
                seed=seed,
                dtype=dtype,
            )
            self.guide_ = trials[0].network
            report = [
                {
                    "guide": trial.name,
                    "held_out_log_likelihood": trial.log_likelihood,
                    "held_out_accuracy": trial.accuracy,
                    "scale": trial.scale,
                    "label_share": trial.label_noise_factor,
                }
                for trial in trials
            ]
        else:
            self.guide_ = guide_kernel(self.guide)
        guide = fit_class_guide(
            self._kernel_function(self.guide_),
            data.rows,
            data.labels,
            data.outputs,
            likelihood=data.likelihood,
            scale=scale,
            seed=seed,
            dtype=dtype,
        )
        if not report:
            report = [
                {
                    "guide": repr(self.guide_),
                    "held_out_log_likelihood": float(guide.score.mean()),
                    "held_out_accuracy": float(guide.accuracy.mean()),
                    "scale": float(guide.own_scale.mean()),
                    "label_share": float(guide.label_noise_factor.mean()),
                }
            ]
        self.guide_report_ = pd.DataFrame(report).assign(chosen=[True] + [False] * (len(report) - 1))
        return guide

    def _kernel_function(self, guide: GuideKernel) -> KernelFunction:
        if self.image_shape_ is None:
            return as_kernel_function(guide)
        return image_kernel_function(guide, self.image_shape_)
