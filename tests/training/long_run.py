"""A short run over batches in a process of its own, to be killed: ``python long_run.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from gdkl.guide import as_kernel_function, fit_guide
from gdkl.infinite import mlp
from gdkl.methods import fit_sparse_gdkl
from gdkl.nets import MLP
from gdkl.training import RunCheckpoint, Schedule, StudentOptions, TensorBatches, as_callbacks

STEPS = 60


def network(columns):
    return nn.Sequential(MLP(columns, (16, 8)), nn.BatchNorm1d(8, dtype=torch.float32), nn.Dropout(0.2))


def fit(folder=None, callbacks=(), every_steps=1):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 3, generator=generator)
    targets = rows.sum(dim=-1).sin().double()[None]
    source = TensorBatches(rows, targets, 16, seed=1)
    guide = fit_guide(as_kernel_function(mlp(1)), rows[None], targets[None]).for_batches()
    checkpoint = None
    if folder is not None:
        checkpoint = RunCheckpoint(Path(folder) / "run", run="this one", every_seconds=None, every_steps=every_steps)
    options = StudentOptions(
        Schedule(STEPS), n_inducing=8, feature_net=network, seed=5, callbacks=callbacks, checkpoint=checkpoint
    )
    return fit_sparse_gdkl(source, guide, options, beta=0.1)


def weights(model):
    posterior = model.posterior
    parts = [posterior.features, posterior.noise, posterior.weights, posterior.reduction]
    return [*parts, *model.embed.state_dict().values()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit(sys.argv[1], as_callbacks([lambda report: print(report.step, flush=True)]))
    print("done", flush=True)
