"""Many fits at once: folds and ensemble members trained as one batch, against one of them alone, in the same run.

Run: python benchmarks/together.py [--rows 455] [--steps 200] [--device cpu]
"""

from __future__ import annotations

import argparse
import time

import torch

from gdkl import infinite
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.methods import fit_gdkl
from gdkl.training import Decay, Schedule, StudentOptions, TrainingData

#: Fits in a row that make one timing.
REPEATS = {"one": 5, "ten folds": 1, "ensemble of five": 2}


def seconds(data: TrainingData, shared: TrainingData, steps: int) -> float:
    """Time of training, the guide's fit left out."""
    guide = fit_guide(as_kernel_function(infinite.mlp()), shared.rows, shared.targets)
    started = time.perf_counter()
    fit_gdkl(data, guide, StudentOptions(Schedule(steps, decay=Decay.COSINE, warm_up=0.05, beta2=0.99)))
    if data.rows.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def main() -> None:
    """Time one fold, ten folds and an ensemble of five in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=455)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(10, arguments.rows, 13, generator=generator, dtype=torch.float64)
    targets = torch.sin(2 * rows[..., 0]) + rows[..., 1]
    folds = TrainingData(rows.to(arguments.device), targets.unsqueeze(1).to(arguments.device))
    one = folds.member(0)
    contenders = {"one": (one, one), "ten folds": (folds, folds), "ensemble of five": (one.repeat(5), one)}
    best = dict.fromkeys(contenders, float("inf"))
    for data, shared in contenders.values():
        seconds(data, shared, 5)
    for _ in range(arguments.rounds):
        # In turns, and each for about as long: a shared machine is not as fast in one second as in the next, and the
        # best of short times would meet its best moments more often than the best of long ones.
        for name, (data, shared) in contenders.items():
            repeats = REPEATS[name]
            taken = sum(seconds(data, shared, arguments.steps) for _ in range(repeats)) / repeats
            best[name] = min(best[name], taken)
    for name, value in best.items():
        print(f"{name}: {1e3 * value / arguments.steps:.2f} ms a step, {value / best['one']:.2f} times one")


if __name__ == "__main__":
    main()
