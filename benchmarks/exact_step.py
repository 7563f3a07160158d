"""Time of one exact training step against the number of rows: ours beside GPyTorch, same network, same data, same run.

Run: python benchmarks/exact_step.py [--rows 100 250 455 927 2000 4000] [--threads 2] [--plot exact_step.png]

With --record the times go into a file, and those of other sizes there are drawn and compared too: large sizes can be
timed in a run of their own.

The ratios are what counts: machines differ and are shared. The published procedure's cost in 500 x 500 float64 Cholesky
factorisations of the same run is to be compared with what was measured of the published code itself (see
`published_step.py`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from matplotlib.figure import Figure

from gdkl import infinite
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.nets import MLP
from gdkl.numerics import TRAINING_SMALLEST, threads_for
from gdkl.objectives import gaussian_term, guided, marginal_likelihood
from gdkl.training import (
    AutogradStep,
    GuidedSplits,
    Schedule,
    SplitSampler,
    StudentOptions,
    TrainingData,
    build_deep_kernel,
    make_optimiser,
)
from published_step import GPyTorchDKL, PublishedGDKL

#: The guide's posteriors are computed ahead, for a pool of splits that a fit goes through about four times. An honest
#: mean covers a pool and its returns: in a round as many splits are fresh, by share, as in a fit of default length. (A
#: fit of fewer than 1000 rows draws another pool half-way, and has a tenth fewer rows until then; together that takes
#: the same time.)
ROUND = 64
FRESH = -(-ROUND * 512 // 2000)

CHOLESKY = "cholesky"

PUBLISHED = "published gdkl"

#: The published procedure takes seconds a step beyond: GPyTorch solves large systems by conjugate gradients.
MOST_PUBLISHED_ROWS = 2000


def _data(n: int, d: int = 13) -> TrainingData:
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(rng.normal(size=(1, n, d)))
    targets = torch.sin(2 * rows[..., 0]) + rows[..., 1] + 0.1 * torch.as_tensor(rng.normal(size=(1, n)))
    return TrainingData(rows, ((targets - targets.mean()) / targets.std()).unsqueeze(1))


def our_steps(data: TrainingData) -> dict[str, Callable[[], None]]:
    """Our guided step and our DKL step, each as the training loop takes it."""
    torch.manual_seed(0)
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    options = StudentOptions(Schedule(1))
    students = [build_deep_kernel(data, options).train() for _ in range(2)]
    optimisers = [make_optimiser([{"params": list(student.parameters())}], options) for student in students]

    def guided_loss(student: Any, data: TrainingData, split: Any, p: Any) -> Any:
        q, y, noise = student.split_marginals(data, split)
        return guided(q, p, gaussian_term(q, y, noise), 1.0)

    def evidence(student: Any, data: TrainingData) -> Any:
        return marginal_likelihood(student.gram(data.rows), data.targets, student.noise(), name="K")

    steps = AutogradStep(students[0], guided_loss), AutogradStep(students[1], evidence)

    def inputs() -> Iterator[Any]:
        for seed in count():
            splits = GuidedSplits(guide, SplitSampler(data.n, 1, seed), pool=FRESH)
            yield from (splits(step) for step in range(ROUND))

    seen = inputs()

    def gdkl_step() -> None:
        steps[0](data, *next(seen))
        optimisers[0].step()

    def dkl_step() -> None:
        steps[1](data)
        optimisers[1].step()

    return {"gdkl": gdkl_step, "dkl": dkl_step}


def their_steps(data: TrainingData) -> dict[str, Callable[[], None]]:
    """The published guided procedure and a plain `ExactGP` deep kernel."""
    torch.manual_seed(0)
    rows, targets = data.rows[0], data.targets[0, 0]
    guide = fit_guide(as_kernel_function(infinite.mlp()), data.rows, data.targets)
    gram = float(guide.scale) * guide.gram[0]
    columns = rows.shape[-1]
    return {
        PUBLISHED: PublishedGDKL(rows, targets, MLP(columns).double(), gram, float(guide.noise)).step,
        "gpytorch dkl": GPyTorchDKL(rows, targets, MLP(columns).double()).step,
    }


def mean_time(step: Callable[[], None], budget: float) -> float:
    """Mean milliseconds of a step over a round of them, cut off when the budget of seconds is spent.

    A mean and not a minimum: work done ahead for many steps must be paid for.
    """
    begun, done = time.perf_counter(), 0
    while done < ROUND and (done < 1 or time.perf_counter() - begun < budget):
        step()
        done += 1
    return 1e3 * (time.perf_counter() - begun) / done


def time_all(n: int, rounds: int, budget: float) -> dict[str, float]:
    """Milliseconds of all steps for ``n`` rows: the best of several rounds, in turns, because machines are shared.

    Ours run as `fit` runs them: with the threads that their size asks for, the guide beside a student of one thread.
    Theirs get both one thread and all, and the better counts.
    """
    data = _data(n)
    ours, theirs = our_steps(data), their_steps(data)
    if n > MOST_PUBLISHED_ROWS:
        del theirs[PUBLISHED]
    square = torch.randn(500, 500, dtype=torch.float64)
    square = square @ square.T + 500 * torch.eye(500, dtype=torch.float64)
    plain = {**theirs, CHOLESKY: lambda: _cholesky(square)}
    steps = [
        ("gdkl", ours["gdkl"], threads_for(n // 2, TRAINING_SMALLEST)),
        ("dkl", ours["dkl"], threads_for(n, TRAINING_SMALLEST)),
    ]
    steps += [(name, step, most) for name, step in plain.items() for most in {1, torch.get_num_threads()}]
    best: dict[str, float] = {}
    for name, step, _ in steps:
        # A whole round of ours, so that the rounds that are timed begin with a pool.
        for _ in range(ROUND if name == "gdkl" else 1):
            step()
    for _ in range(rounds):
        for name, step, most in steps:
            with _threads(most):
                best[name] = min(best.get(name, float("inf")), mean_time(step, budget))
    return best


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    """Time all steps for all sizes, print a table and draw the growth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 250, 455, 927, 2000, 4000])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="most threads that anyone gets")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds a round")
    parser.add_argument("--plot", type=Path, default=None)
    parser.add_argument("--record", type=Path, default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, GPyTorch {gpytorch.__version__}, at most {arguments.threads} threads; ms a step")
    print(
        f"{'n':>5} {'threads':>7} {'gdkl':>8} {'dkl':>8} {'published':>9} {'gpytorch':>8}"
        "   published/gdkl gpytorch/gdkl gdkl/dkl   in 500 x 500 Cholesky factors: published gpytorch"
    )
    record: Path | None = arguments.record
    known: dict[str, dict[str, float]] = (
        json.loads(record.read_text()) if record is not None and record.exists() else {}
    )
    for n in arguments.rows:
        times = time_all(n, arguments.rounds, arguments.budget)
        cholesky = times.pop(CHOLESKY)
        known[str(n)] = {name: round(value, 3) for name, value in times.items()}
        g, d, p, e = (times.get(name, float("nan")) for name in ("gdkl", "dkl", PUBLISHED, "gpytorch dkl"))
        print(
            f"{n:>5} {threads_for(n // 2, TRAINING_SMALLEST):>7} {g:>8.2f} {d:>8.2f} {p:>9.2f} {e:>8.2f}"
            f"   {p / g:>14.1f} {e / g:>13.1f} {g / d:>8.2f} {p / cholesky:>41.1f} {e / cholesky:>8.1f}",
            flush=True,
        )
    if record is not None:
        record.write_text(json.dumps(known, indent=1) + "\n")
    sizes = sorted(int(n) for n in known)
    for first, last in pairwise(sizes):
        slopes = {
            name: np.log(known[str(last)][name] / value) / np.log(last / first)
            for name, value in known[str(first)].items()
            if name in known[str(last)]
        }
        grown = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
        print(f"growth from n = {first} to {last}, as a power of n: {grown}")
    if arguments.plot is not None:
        table = {name: [known[str(n)].get(name, float("nan")) for n in sizes] for name in known[str(sizes[0])]}
        draw(sizes, table, arguments.plot)


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
