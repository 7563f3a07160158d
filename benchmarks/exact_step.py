"""Time of one exact training step against the number of rows: ours beside GPyTorch, same network, same data, same run.

Run: python benchmarks/exact_step.py [--rows 100 250 455 927 2000 4000] [--threads 1] [--plot exact_step.png]

The ratios are what counts: machines differ and are shared. The time of a 500 x 500 float64 Cholesky factorisation in
the same run tells how fast this one was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from gdkl import infinite
from gdkl.gp import take_targets
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import DeepKernelOptions, TrainingData
from gdkl.methods.deep_kernel import build_deep_kernel
from gdkl.methods.gdkl import guided_splits
from gdkl.nets import MLP
from gdkl.objectives import guided, marginal_likelihood
from gdkl.training import Schedule, SplitSampler
from published_step import GPyTorchDKL, PublishedGDKL

#: The guide's posteriors for a batch of splits are computed ahead; an honest mean covers whole batches of them.
ROUND = 64


def _data(n: int, d: int = 13) -> TrainingData:
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(rng.normal(size=(1, n, d)))
    targets = torch.sin(2 * rows[..., 0]) + rows[..., 1] + 0.1 * torch.as_tensor(rng.normal(size=(1, n)))
    return TrainingData(rows, ((targets - targets.mean()) / targets.std()).unsqueeze(1))


def our_steps(data: TrainingData, spare: Executor | None = None) -> dict[str, Callable[[], None]]:
    """Our guided step and our DKL step, each as the training loop runs it."""
    torch.manual_seed(0)
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    options = DeepKernelOptions(Schedule(1))
    models = [build_deep_kernel(data, options) for _ in range(2)]
    optimisers = [torch.optim.Adam(model.parameters(), lr=1e-2, fused=True) for model in models]
    splits = guided_splits(guide, SplitSampler(data.n, 1, seed=0), spare)

    def guided_step() -> None:
        split, p = next(splits)
        q = models[0].split_marginals(data, split)
        value = guided(q, p, take_targets(data.targets, split.held_out), models[0].noise(), 1.0).value
        optimisers[0].zero_grad(set_to_none=True)
        value.sum().backward()
        optimisers[0].step()

    def dkl_step() -> None:
        value = marginal_likelihood(models[1].gram(data), data.targets, models[1].noise(), name="K").value
        optimisers[1].zero_grad(set_to_none=True)
        value.sum().backward()
        optimisers[1].step()

    return {"gdkl": guided_step, "dkl": dkl_step}


def their_steps(data: TrainingData) -> dict[str, Callable[[], None]]:
    """The published guided procedure and a plain `ExactGP` deep kernel."""
    torch.manual_seed(0)
    rows, targets = data.rows[0], data.targets[0, 0]
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    gram = float(guide.scale) * guide.gram[0]
    columns = rows.shape[-1]
    return {
        "published gdkl": PublishedGDKL(rows, targets, MLP(columns).double(), gram, float(guide.noise)).step,
        "gpytorch dkl": GPyTorchDKL(rows, targets, MLP(columns).double()).step,
    }


def milliseconds(step: Callable[[], None], budget: float) -> float:
    """Mean time of a step over as many rounds as the budget of seconds allows, after a warm-up.

    A mean and not a minimum: work done ahead for many steps must be paid for. The best of three rounds, because others
    share the machine.
    """
    for _ in range(2):
        step()
    means: list[float] = []
    started = time.perf_counter()
    while len(means) < 3 and (not means or time.perf_counter() - started < budget):
        begun, count = time.perf_counter(), 0
        while count < ROUND and (count < 3 or time.perf_counter() - begun < budget):
            step()
            count += 1
        means.append((time.perf_counter() - begun) / count)
    return 1e3 * min(means)


def main() -> None:
    """Time all steps for all sizes, print a table and draw the growth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 250, 455, 927, 2000, 4000])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--budget", type=float, default=5.0, help="seconds a size and step")
    parser.add_argument("--plot", type=Path, default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    square = torch.randn(500, 500, dtype=torch.float64)
    square = square @ square.T + 500 * torch.eye(500, dtype=torch.float64)
    reference = milliseconds(lambda: _cholesky(square), 1.0)
    print(f"torch {torch.__version__}, {arguments.threads} threads; a 500 x 500 Cholesky takes {reference:.2f} ms")
    print(f"{'n':>6} {'gdkl':>9} {'dkl':>9} {'published':>10} {'gpytorch':>9}   published/gdkl gpytorch/gdkl gdkl/dkl")
    table: dict[str, list[float]] = {}
    for n in arguments.rows:
        data = _data(n)
        steps = {**our_steps(data), **their_steps(data)}
        times = {name: milliseconds(step, arguments.budget) for name, step in steps.items()}
        for name, value in times.items():
            table.setdefault(name, []).append(value)
        g, d, p, e = times.values()
        print(
            f"{n:>6} {g:>9.2f} {d:>9.2f} {p:>10.2f} {e:>9.2f}   {p / g:>14.1f} {e / g:>13.1f} {g / d:>8.2f}", flush=True
        )
    if len(arguments.rows) > 1:
        slope = np.polyfit(np.log(arguments.rows[-2:]), np.log(table["gdkl"][-2:]), 1)[0]
        print(f"growth of the guided step between the last two sizes: n^{slope:.2f}")
    if arguments.plot is not None:
        draw(arguments.rows, table, arguments.plot)


def _cholesky(matrix: torch.Tensor) -> None:
    torch.linalg.cholesky(matrix)


def draw(rows: list[int], table: dict[str, list[float]], path: Path) -> None:
    """Growth with n on logarithmic axes."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in table.items():
        axes.loglog(rows, values, "o-", label=name)
    axes.set(xlabel="rows", ylabel="milliseconds a step")
    axes.legend()
    figure.savefig(path, dpi=150)
    print(f"drawn to {path}")


if __name__ == "__main__":
    main()
