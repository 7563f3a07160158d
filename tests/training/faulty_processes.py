"""A fit of which one process meets NaN: ``torchrun --nproc-per-node 2 faulty_processes.py FOLDER KIND``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

from gdkl.nets import MLP
from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.objectives import evidence_bound, gaussian_term
from gdkl.training import Schedule, StudentOptions, TensorBatches, fit_sparse, process_group
from training.two_processes import data, state

STEPS = 60


def fit(world, faults):
    rows, targets, _ = data()
    options = StudentOptions(
        Schedule(STEPS, 1e-2), n_inducing=8, feature_net=lambda d: MLP(d, (16, 8)), seed=3, world=world
    )
    calls = iter(range(STEPS))

    def loss(student, rows, y):
        q = student.marginals(rows)
        ell = gaussian_term(q, y[None], student.noise())
        if next(calls) in faults:
            ell = ell * torch.nan
        return evidence_bound(ell, student.points.kl().mean(dim=-1), 96)

    return fit_sparse(TensorBatches(rows, targets, 16, 5, world), 1, options, loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NumericsWarning)
    with process_group(torch.device("cpu")) as world:
        found = range(30, STEPS) if sys.argv[2] == "always" else (17, 41)
        try:
            model = fit(world, found if world.rank == 1 else ())
            made = {"state": state(model), "rollbacks": model.outcome.rollbacks}
        except NumericsError as error:
            made = {"error": str(error)}
        torch.save(made, Path(sys.argv[1]) / f"rank{world.rank}.pt")
