"""Bayesian optimisation begins with hardly any rows."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("botorch")

from botorch.acquisition import LogExpectedImprovement
from botorch.optim import optimize_acqf

from gdkl import GDKLRegressor
from gdkl.integrations.botorch import GDKLModel, default_estimator

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:Constant column")
@pytest.mark.parametrize("Y", [[1.5], [1.0, 2.0], [0.3, -0.2, 0.5], [2.0, 2.0, 2.0]], ids=str)
def test_a_step_from_few_rows_or_constant_targets(Y):
    X = torch.rand(len(Y), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor(Y, dtype=torch.float64).unsqueeze(-1)
    model = GDKLModel(X, targets)
    at_rows, elsewhere = model.posterior(X), model.posterior(1 - X)
    # Rows that are known are known better than others, and close to their targets.
    assert (at_rows.variance.max() < elsewhere.variance.max()).all()
    spread = targets.std().item() if len(set(Y)) > 1 else 1.0
    assert (at_rows.mean - targets).abs().max() < 0.5 * spread
    function = LogExpectedImprovement(model, best_f=targets.max())
    row, value = optimize_acqf(function, bounds=UNIT, q=1, num_restarts=2, raw_samples=16, options={"maxiter": 10})
    assert torch.isfinite(value)
    assert (row - X).norm(dim=-1).min() > 0.05


def test_nearly_exact_targets_are_not_taken_for_noise():
    # Of a dozen rows the evidence alone is highest where all is noise: every row is as good as any other then.
    X = torch.rand(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Y = torch.sin(3 * X).sum(dim=-1, keepdim=True)
    left = []
    for estimator in (GDKLRegressor(warp=None, guide_share=1.0, n_iter=1, random_state=0), default_estimator()):
        model = GDKLModel(X, Y, estimator=estimator.set_params(guide_share=1.0, n_iter=1))
        left.append(((model.posterior(X).mean - Y).square().mean() / Y.var()).item())
    assert left[1] < 0.05 < left[0]
