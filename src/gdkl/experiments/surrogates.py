"""One run of Bayesian optimisation, and the models that it may ask."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.kernels import InfiniteWidthBNNKernel
from botorch.models.model import Model
from botorch.models.transforms.input import AffineInputTransform
from botorch.optim import optimize_acqf
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.warnings import NumericalWarning
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.quasirandom import SobolEngine

from gdkl.estimators.regression import RegressorBase
from gdkl.experiments.problems import problem
from gdkl.experiments.results import Line, versions
from gdkl.experiments.spec import Cell, Spec
from gdkl.experiments.trial import Place, build
from gdkl.integrations.botorch import GDKLModel
from gdkl.numerics import OptionError

#: Starts of the search for the next row, drawn from so many by their acquisition values, and steps of L-BFGS from each.
_STARTS, _RAW, _STEPS = 4, 128, 50

#: Regrets below this count as this: of no problem more digits are of interest.
_SMALLEST = 1e-6


class Random(BaseEstimator):
    """No model: rows of the Sobol sequence go on."""


class SingleTask(BaseEstimator):
    """BoTorch's Gaussian process as it comes, or with its kernel of an infinite network of three hidden ReLU layers."""

    def __init__(self, infinite_width: bool = False):
        self.infinite_width = infinite_width

    def surrogate(self, X: Tensor, Y: Tensor) -> Model:
        """The model, not fitted."""
        if not self.infinite_width:
            return SingleTaskGP(X, Y)
        half = torch.full_like(X[:1], 0.5)
        # The kernel has an origin: the middle of the cube, whose sides are at distance one.
        centred = AffineInputTransform(X.shape[-1], half, half)
        kernel = InfiniteWidthBNNKernel(3)
        # Where BoTorch's tutorial starts.
        kernel.weight_var, kernel.bias_var = 10.0, 5.0
        return SingleTaskGP(X, Y, covar_module=ScaleKernel(kernel), input_transform=centred)


def optimise(spec: Spec, cell: Cell, place: Place) -> Line:
    """Minimise a problem: some rows of a Sobol sequence, then one row at a time by log expected improvement."""
    task, budget = problem(cell.dataset), cell.size
    initial = task.dim + 3
    if not isinstance(budget, int) or budget <= initial:
        raise OptionError(f"size={budget!r} must be a number of evaluations above {initial}, with which a run begins.")
    estimator = build(spec, cell, budget, replace(place, verbose=0))
    torch.manual_seed(cell.seed)
    rows = SobolEngine(task.dim, scramble=True, seed=cell.seed).draw(budget, dtype=torch.float64)
    # Of the processor: rounds are short, and other work on the machine must not count.
    seconds: list[float] = []
    if not isinstance(estimator, Random):
        for count in range(initial, budget):
            started = time.process_time()
            known = rows[:count]
            rows[count] = _next_row(estimator, known, -task.regret(known).unsqueeze(-1))
            seconds.append(time.process_time() - started)
    regret = task.regret(rows).cummin(dim=0).values[initial - 1 :]
    per_round = sum(seconds) / len(seconds) if seconds else 0.0
    scores = {
        "digits": -float(regret[-1].clamp_min(_SMALLEST).log10()),
        "regret": float(regret[-1]),
        "seconds_per_round": round(per_round, 4),
    }
    return {
        **cell.identity(),
        "key": cell.key,
        "scores": {"test": scores},
        "seconds": {"fit": round(sum(seconds), 3)},
        "versions": versions(place.device),
        "details": {"initial": initial, "regret": [float(f"{value:.5g}") for value in regret.tolist()]},
    }


def _next_row(estimator: Any, X: Tensor, Y: Tensor) -> Tensor:
    """The row to evaluate next, ``(d,)``; values are to be maximised."""
    with warnings.catch_warnings():
        # Of jitters and of starts of the searches that failed.
        for category in (BotorchWarning, NumericalWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        ours = isinstance(estimator, RegressorBase)
        model: Any = GDKLModel(X, Y, estimator=estimator) if ours else estimator.surrogate(X, Y)
        with suppress(ModelFittingError):  # the model stays as its priors have it
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        row, _ = optimize_acqf(
            LogExpectedImprovement(model, best_f=Y.max()),
            bounds=torch.tensor([[0.0], [1.0]], dtype=X.dtype).expand(2, X.shape[-1]),
            q=1,
            num_restarts=_STARTS,
            raw_samples=_RAW,
            options={"maxiter": _STEPS},
        )
    return row[0]
