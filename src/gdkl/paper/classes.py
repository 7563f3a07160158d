"""Classification of small tables: GDKL beside its baselines and scikit-learn's own, on data that comes with it.

Not an experiment of the paper, which classifies images alone. Five splits for each part of the rows; nothing of the
library was chosen on them: `docs/reproduction.md` says on which it was.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets as bundled
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gdkl import metrics
from gdkl.estimators import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.classifier_base import ClassifierBase
from gdkl.estimators.gdkl_classifier import BETA
from gdkl.methods import FittedModel
from gdkl.numerics import DataWarning, OptionError
from gdkl.paper.results import versions

DATASETS = ("digits", "wine", "breast_cancer")

#: Parts of the rows that models are fitted to.
PARTS = (0.2, 0.6)

_LOADERS = {
    "digits": bundled.load_digits,
    "wine": bundled.load_wine,
    "breast_cancer": bundled.load_breast_cancer,
}


class Method(StrEnum):
    """What `gdkl reproduce classes` can run."""

    GDKL = "gdkl"
    """The guided objective, the estimator as it comes: its guide has a share of the predictions."""
    GDKL_STUDENT = "gdkl_student"
    """The student alone, of the same training."""
    DKL = "dkl"
    """Deep kernel by evidence."""
    NNGP = "nngp"
    """The guide alone."""
    NN = "nn"
    """The network with a softmax head."""
    GPC = "gpc"
    """scikit-learn's Gaussian process classifier (Laplace, one against the rest), RBF by evidence."""
    BOOSTING = "boosting"
    """scikit-learn's gradient boosting as it comes."""
    NNGP_LOO = "nngp_loo"
    """The guide alone with the temperature that GDKL has by default."""
    DKL_LOO = "dkl_loo"
    """Deep kernel by evidence with a temperature by leave-one-out."""
    NN_TEMPERATURE = "nn_temperature"
    """The network with a temperature by held-out rows, as is usual."""


@dataclass(frozen=True)
class Protocol:
    """Settings of a run.

    Attributes:
        part: Part of the rows that a model is fitted to.
        seeds: Splits s = 0 … seeds − 1, stratified; s also seeds the model.
        gdkl_iterations: GDKL's steps; None for the estimator's own.
        other_iterations: Steps of DKL and of the network; None for the estimators' own.
    """

    part: float
    seeds: int = 5
    gdkl_iterations: int | None = None
    other_iterations: int | None = None


def run(name: str, method: Method, protocol: Protocol, *, device: torch.device) -> dict[str, Any]:
    """Run one method on all splits of one dataset.

    Returns:
        The result file's content: settings, versions, and the scores of every split.
    """
    return run_fitted(name, method, (method,), protocol, device=device)[method]


def run_fitted(
    name: str,
    fitted: Method,
    asked: Sequence[Method],
    protocol: Protocol,
    *,
    device: torch.device,
    first_seed: int = 0,
) -> dict[Method, dict[str, Any]]:
    """Fit one method on all splits of one dataset, and ask it in several ways.

    Args:
        name: The dataset.
        fitted: What is fitted.
        asked: Whose results are wanted: ``fitted``, and of GDKL the student too, which is trained the same with or
            without its guide's share in predictions.
        protocol: Settings.
        device: Where to.
        first_seed: Where to begin, if the splits before it are there already.

    Returns:
        Contents of the result files, with the splits from the first seed on.
    """
    if not set(asked) <= {fitted, *([Method.GDKL_STUDENT] if fitted is Method.GDKL else [])}:
        raise OptionError(f"{', '.join(asked)} cannot be asked of a fitted {fitted}.")
    if name not in DATASETS:
        raise OptionError(f"dataset {name!r} is not part of this experiment: use {', '.join(DATASETS)}.")
    if not 0 < protocol.part < 1:
        raise OptionError(f"part={protocol.part!r} must lie between 0 and 1.")
    X, y = _LOADERS[name](return_X_y=True)
    splits: dict[Method, list[dict[str, Any]]] = {method: [] for method in asked}
    for seed in range(first_seed, protocol.seeds):
        train, test = train_test_split(np.arange(len(y)), train_size=protocol.part, stratify=y, random_state=seed)
        model = _make(fitted, protocol, seed, X.shape[1], device)
        started = time.perf_counter()
        with warnings.catch_warnings():
            # A few pixels of the digits are always black, and an RBF's bounds may bind: both are as they should be.
            warnings.simplefilter("ignore", DataWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X[train], y[train])
        seconds = time.perf_counter() - started
        for method in asked:
            speaker = model if method is fitted else _student_alone(model)
            probs: NDArray[np.float64] = speaker.predict_proba(X[test])
            scores = metrics.class_summary(probs, y[test])
            splits[method].append({"seed": seed, "fit_seconds": round(seconds, 2), "test": scores})
    return {
        method: {
            "experiment": "classes",
            "dataset": name,
            "method": method.value,
            "protocol": asdict(protocol),
            "options": current_options(name, method, protocol),
            "versions": versions(device),
            "splits": splits[method],
        }
        for method in asked
    }


#: What "auto" comes to on a table.
_AUTO_ON_TABLES = {"optimizer": "adam", "calibrate": "loo", "beta": BETA}


def _student_alone(model: GDKLClassifier) -> GDKLClassifier:
    """The same fitted model without its guide's share in predictions."""
    student = copy(model)
    student.model_ = replace(cast(FittedModel, model.model_), guide=None, guide_share=0.0)
    return student


def current_options(name: str, method: Method, protocol: Protocol) -> dict[str, Any]:
    """Options that a model would have if it were fitted now: a result with others is of another library."""
    columns = _LOADERS[name](return_X_y=True)[0].shape[1]
    return _plain_options(_make(method, protocol, 0, columns, torch.device("cpu")))


def _plain_options(model: Any) -> dict[str, Any]:
    """What a model was made with, as far as JSON can say it, but for seed, device, files and what is for images."""
    plain = (bool, int, float, str, type(None))
    left_out = {"random_state", "device", "checkpoint_dir", "views"}
    if isinstance(model, (DKLClassifier, NNClassifier)):
        left_out.add("augment")
    options = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in left_out and isinstance(value, plain)
    }
    if isinstance(model, ClassifierBase):
        # A word that leaves the choice to the library says less than the choice.
        options |= {name: on_tables for name, on_tables in _AUTO_ON_TABLES.items() if options.get(name) == "auto"}
    return options


def _make(method: Method, protocol: Protocol, seed: int, columns: int, device: torch.device) -> Any:
    """A fresh model."""
    place: dict[str, Any] = {"random_state": seed, "device": str(device)}
    if method in (Method.GDKL, Method.GDKL_STUDENT):
        alone = {"guide_share": 0.0} if method is Method.GDKL_STUDENT else {}
        return GDKLClassifier(**place, **alone, **_steps(protocol.gdkl_iterations))
    if method in (Method.DKL, Method.DKL_LOO):
        calibrate = "loo" if method is Method.DKL_LOO else None
        return DKLClassifier(**place, calibrate=calibrate, **_steps(protocol.other_iterations))
    if method in (Method.NN, Method.NN_TEMPERATURE):
        calibrate = "temperature" if method is Method.NN_TEMPERATURE else None
        return NNClassifier(**place, calibrate=calibrate, **_steps(protocol.other_iterations))
    if method in (Method.NNGP, Method.NNGP_LOO):
        return NNGPClassifier(**place, calibrate="loo" if method is Method.NNGP_LOO else None)
    if method is Method.GPC:
        # scikit-learn's own start, a lengthscale of one, connects nothing in many columns.
        kernel = ConstantKernel(1.0) * RBF(float(np.sqrt(columns)))
        return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=seed))
    return GradientBoostingClassifier(random_state=seed)


def _steps(count: int | None) -> dict[str, Any]:
    return {} if count is None else {"n_iter": count}
