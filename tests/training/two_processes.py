"""Ten steps under torchrun, one file a process: ``torchrun --nproc-per-node 2 two_processes.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from gdkl.guide import as_kernel_function, fit_class_guide, fit_guide
from gdkl.infinite import mlp
from gdkl.methods import fit_sparse_gdkl, fit_sparse_gdkl_classes
from gdkl.nets import MLP
from gdkl.training import ALONE, Callback, Schedule, StudentOptions, TensorBatches, process_group

STEPS, BATCH = 10, 16


class Losses(Callback):
    def __init__(self):
        self.values = []

    def on_step(self, report):
        self.values.append(report.values["objective"])


def data():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(96, 3, generator=generator, dtype=torch.float64)
    return rows, rows.sum(dim=-1).sin()[None], (rows[:, 0] > 0).long()


def options(world, callbacks=()):
    return StudentOptions(
        Schedule(STEPS, 1e-2),
        n_inducing=8,
        feature_net=lambda d: MLP(d, (16, 8)),
        seed=3,
        callbacks=callbacks,
        world=world,
    )


def fit(kind, world=ALONE, callbacks=()):
    rows, targets, labels = data()
    kernel = as_kernel_function(mlp(1))
    if kind == "numbers":
        source = TensorBatches(rows, targets, BATCH, 5, world)
        guide = fit_guide(kernel, rows[None], targets[None]).for_batches()
        return fit_sparse_gdkl(source, guide, options(world, callbacks), beta=0.1)
    source = TensorBatches(rows, labels, BATCH, 5, world)
    guide = fit_class_guide(kernel, rows[None], labels[None], 2, scale=4.0).for_batches()
    return fit_sparse_gdkl_classes(source, guide, options(world, callbacks), beta=0.1)


def state(model):
    posterior = model.posterior
    parts = [posterior.features, posterior.noise, posterior.weights, posterior.reduction]
    return [*parts, *model.embed.state_dict().values()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with process_group(torch.device("cpu")) as world:
        made = {}
        for kind in ("numbers", "labels"):
            losses = Losses()
            model = fit(kind, world, [losses])
            made[kind] = {"losses": losses.values, "state": state(model)}
        torch.save(made, Path(sys.argv[1]) / f"rank{world.rank}.pt")
