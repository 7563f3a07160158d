"""Two processes give what one gives that accumulates the gradients of the same two rank-batches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import training.two_processes as runs
from gdkl.gp import Marginals
from gdkl.guide import as_kernel_function, fit_class_guide, fit_guide
from gdkl.infinite import mlp
from gdkl.methods.sparse_gdkl import softmax_samples
from gdkl.objectives import gaussian_term, guided, softmax_term
from gdkl.training import TensorBatches, World, build_sparse_deep_kernel, seeded
from gdkl.training.distributed import average_gradients, local_device

SCRIPT = Path(__file__).with_name("two_processes.py")


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    subprocess.run([*launcher, SCRIPT, folder], env=environment, check=True, timeout=300, capture_output=True)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def accumulated(kind):
    """One process, both rank-batches of every step, gradients added up and halved; the first rank's loss."""
    rows, targets, labels = runs.data()
    kernel = as_kernel_function(mlp(1))
    y = targets if kind == "numbers" else labels
    sources = [TensorBatches(rows, y, runs.BATCH, 5, World(rank, 2)) for rank in range(2)]
    settings = [runs.options(World(rank, 2)) for rank in range(2)]
    with seeded(3, torch.device("cpu")):
        model = build_sparse_deep_kernel(sources[0], 1 if kind == "numbers" else 2, settings[0]).train()
    if kind == "numbers":
        guide = fit_guide(kernel, rows[None], targets[None]).for_batches()
    else:
        guide = fit_class_guide(kernel, rows[None], labels[None], 2, scale=4.0).for_batches()
        model.noise.requires_grad_(False)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-2, betas=(0.9, settings[0].schedule.beta2), fused=True)
    losses = []
    for step in range(runs.STEPS):
        for group in optimiser.param_groups:
            group["lr"] = settings[0].schedule.rate(step)
        optimiser.zero_grad(set_to_none=True)
        for rank in range(2):
            batch = sources[rank].batch(step)
            p = guide.batch_posterior(batch.rows, batch.targets, batch.index)
            q: Marginals = model.marginals(batch.rows)
            if kind == "numbers":
                value = guided(q, p, gaussian_term(q, batch.targets[None], model.noise()), 0.1).value
            else:
                base = softmax_samples(batch, 2, settings[rank], step)
                value = guided(q, p, softmax_term(q, batch.targets[None], base), 0.1).value
            (value.sum() / 2).backward()
            if rank == 0:
                losses.append(float(value.detach()))
        optimiser.step()
    with torch.no_grad():
        posterior = model.eval().posterior()
    parts = [posterior.features, posterior.noise, posterior.weights, posterior.reduction]
    return losses, [*parts, *model.network.state_dict().values()]


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_two_processes_are_one_that_accumulates(kind, processes):
    losses, expected = accumulated(kind)
    assert processes[0][kind]["losses"] == pytest.approx(losses, abs=1e-6)
    # Only the first process reports.
    assert processes[1][kind]["losses"] == []
    for rank in range(2):
        for mine, other in zip(processes[rank][kind]["state"], expected, strict=True):
            torch.testing.assert_close(mine, other.detach(), atol=1e-10, rtol=1e-10)


def test_alone_nothing_is_averaged():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([1.0, 2.0])
    average_gradients([parameter], World())
    assert parameter.grad.tolist() == [1.0, 2.0]
    assert local_device(torch.device("cpu")) == torch.device("cpu")
