"""Guides of classifiers: one that is given, or the best of a search."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gdkl.estimators.classification import ClassifierBase
from gdkl.estimators.factories import guide_kernel
from gdkl.estimators.plan import Plan
from gdkl.guide import Guide, GuideKernel, fit_class_guide, search_guides
from gdkl.numerics import OptionError
from gdkl.training import ClassData

_AUTO = "auto"


class GuidedClassifier(ClassifierBase):
    """What GDKL and NNGP have in common: a guide, given or searched for.

    Attributes after ``fit``:
        guide_: The guide that was used.
        guide_report_: DataFrame, one row per guide that was tried, the best first: how well it predicts held-out
            labels, at which output scale, and with which factor on the labels' own variances. A stack has one where
            guides were searched for. ``print(model.guide_report_.to_string())`` shows all columns.
    """

    guide_: GuideKernel
    guide_report_: pd.DataFrame
    beta_: float

    def _check_options(self) -> None:
        super()._check_options()
        if isinstance(self.guide, str):
            if self.guide != _AUTO:
                raise OptionError(f"guide={self.guide!r} is not known: the only word is 'auto'.")
            return
        guide_kernel(self.guide)

    def _choose_kernel(self, data: ClassData, plan: Plan) -> GuideKernel:
        """The kernel of guides that are fitted later on."""
        vars(self).pop("guide_report_", None)
        if isinstance(self.guide, str):
            self._fit_guide(data, plan)
        else:
            self.guide_ = guide_kernel(self.guide)
        return self.guide_

    def _fit_guide(self, data: ClassData, plan: Plan, scale: float | None = None) -> Guide:
        """Choose the guide's kernel, if it is searched for, and its hyperparameters by held-out labels."""
        options: dict[str, Any] = {"likelihood": data.likelihood, "seed": plan.seed, "dtype": plan.algebra}
        known = data.rows, data.labels, data.outputs
        rows: list[dict[str, Any]] = []
        if isinstance(self.guide, str):
            shape = plan.kind.input.image_shape
            trials = search_guides(plan.kind.guides(plan.device), *known, image_shape=shape, **options)
            self.guide_ = trials[0].network
            rows = [
                _report(trial.name, trial.log_likelihood, trial.accuracy, trial.scale, trial.label_noise_factor)
                for trial in trials
            ]
        else:
            self.guide_ = guide_kernel(self.guide)
        guide = fit_class_guide(plan.kind.kernel(self.guide_), *known, scale=scale, **options)
        if not rows:
            found = (guide.score, guide.accuracy, guide.own_scale, guide.label_noise_factor)
            rows = [_report(repr(self.guide_), *(float(value.mean()) for value in found))]
        self.guide_report_ = pd.DataFrame(rows).assign(chosen=[True] + [False] * (len(rows) - 1))
        return guide


def _report(name: str, log_likelihood: float, accuracy: float, scale: float, factor: float) -> dict[str, Any]:
    return {
        "guide": name,
        "held_out_log_likelihood": log_likelihood,
        "held_out_accuracy": accuracy,
        "scale": scale,
        "label_noise_factor": factor,
    }
