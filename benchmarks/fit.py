"""Whole fits: the default GDKLRegressor beside BoTorch's SingleTaskGP as it comes, on real tables, in turns.

Run: python benchmarks/fit.py --data-dir DIR [--experiment tables-unseen] [--rows 500] [--tables boston energy]
     python benchmarks/fit.py --busy

Prints seconds of both and their ratio for each table, and the median ratio. BoTorch sees tables as the peers of the
benchmark do, one column per category. With --busy it times our regressors on a made table alone and beside one busy
thread per core, the best of three fits each, and prints how much longer they take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from gdkl import GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.experiments import SPECS, Cell
from gdkl.experiments.peers import PeerRegressor


def seconds(model: Any, X: Any, y: Any) -> float:
    """Of one fit."""
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def beside_botorch(experiment: str, tables: list[str], rows: int, data_dir: Path | None) -> None:
    """One line per table, and the median ratio."""
    spec, ratios = SPECS[experiment], list[float]()
    models = {"gdkl": GDKLRegressor(random_state=0), "botorch": PeerRegressor(peer="botorch", tuned=False)}
    for table in tables or spec.datasets:
        taken: dict[str, float] = {}
        for method, model in models.items():
            part = spec.data(Cell(experiment, table, method, rows, 1, 0, "test", {}), data_dir, 0)
            taken[method] = seconds(model, part.X, part.y)
        ratios.append(taken["gdkl"] / taken["botorch"])
        own, other = taken.values()
        print(f"{table}: GDKL {own:.1f} s, BoTorch {other:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median over {len(ratios)} tables: GDKL / BoTorch {median(ratios):.2f}")


def compute() -> None:
    """Keep one core busy."""
    matrix = np.random.default_rng(0).standard_normal((300, 300))
    with threadpool_limits(limits=1, user_api="blas"):
        while True:
            matrix @ matrix


def beside_a_busy_process(rows: int) -> None:
    """How much longer fits take while every core has other work."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, 17))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * generator.standard_normal(rows)
    models = {"GDKL": GDKLRegressor, "NNGP": NNGPRegressor, "GP": GPRegressor}

    def taken(name: str) -> float:
        return min(seconds(models[name](random_state=0), X, y) for _ in range(3))

    quiet = {name: taken(name) for name in models}
    processes = [multiprocessing.Process(target=compute, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in processes:
        process.start()
    try:
        for name in models:
            busy = taken(name)
            print(f"{name}: {quiet[name]:.2f} s alone, {busy:.2f} s on busy cores, ratio {busy / quiet[name]:.2f}")
    finally:
        for process in processes:
            process.kill()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--experiment", choices=["tables", "tables-unseen"], default="tables")
    parser.add_argument("--tables", nargs="+", default=[])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--busy", action="store_true")
    arguments = parser.parse_args()
    if arguments.busy:
        beside_a_busy_process(arguments.rows)
    else:
        beside_botorch(arguments.experiment, arguments.tables, arguments.rows, arguments.data_dir)


if __name__ == "__main__":
    main()
