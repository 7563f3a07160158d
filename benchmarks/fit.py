"""Whole fits: seconds to a given test log-likelihood, the library's schedule beside the published one.

Run: python benchmarks/fit.py --data-dir DIR [--datasets boston energy concrete] [--splits 3]

Each contender trains on the same splits of the same tables, alone, one after the other. The published schedule runs for
its 7000 steps, the library's for several lengths. The level to reach is what the published schedule ends with, less one
standard error over its splits; the ratio is of the published time to that of the shortest of ours that gets there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from gdkl import GDKLRegressor, datasets, metrics

PUBLISHED = {"schedule": "published", "n_iter": 7000, "learning_rate": 1e-2}
LENGTHS = (1000, 1500, 2000, 3000)


def fit(name: str, splits: int, data_dir: Path | None, **options: object) -> tuple[list[float], list[float]]:
    """Seconds and test log-likelihood of each split."""
    X, y, *_ = datasets.load(name, data_dir=data_dir)
    seconds: list[float] = []
    levels: list[float] = []
    for seed in range(splits):
        train, test = datasets.published_split(len(X), seed)
        model = GDKLRegressor(random_state=0, **options)
        started = time.perf_counter()
        model.fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        levels.append(metrics.summary(model.predict_distribution(X[test]), y[test])["log_likelihood"])
    return seconds, levels


def main() -> None:
    """Fit all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--datasets", nargs="+", default=["boston", "energy", "concrete"])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    arguments = parser.parse_args()
    for name in arguments.datasets:
        there, levels = fit(name, arguments.splits, arguments.data_dir, **PUBLISHED)
        goal = float(np.mean(levels) - np.std(levels, ddof=1) / np.sqrt(len(levels)))
        print(
            f"{name}: published schedule, 7000 steps: {np.mean(there):.1f} s a fit, LL {np.mean(levels):.3f}",
            flush=True,
        )
        reached = None
        for length in sorted(arguments.lengths):
            seconds, ours = fit(name, arguments.splits, arguments.data_dir, n_iter=length)
            print(f"  {length} steps of ours: {np.mean(seconds):.1f} s a fit, LL {np.mean(ours):.3f}", flush=True)
            if reached is None and np.mean(ours) >= goal:
                reached = float(np.mean(there) / np.mean(seconds))
        print(
            f"  LL {goal:.3f} is reached " + ("by none" if reached is None else f"{reached:.1f} times sooner"),
            flush=True,
        )


if __name__ == "__main__":
    main()
