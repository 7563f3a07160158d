"""A made table of 600,000 rows by 77 columns: fit and predict with inducing points, beside histogram gradient boosting.

    python benchmarks/large_table.py [--rows 600000] [--epochs 5] [--memory-mapped]

Prints R² of both on held-out rows, seconds, rows a second, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score

from gdkl import GDKLRegressor

COLUMNS = 77
TEST_ROWS = 50_000


def make(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns with heavy tails, and a target that is smooth in some of them, with steps and noise."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((rows, 12)).astype(np.float32)
    mixing = rng.standard_normal((12, COLUMNS)).astype(np.float32)
    X = hidden @ mixing
    X += rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    X[:, ::7] = np.sinh(X[:, ::7] / 4)
    y = np.sin(hidden[:, 0] * 1.5) * hidden[:, 1] + 0.5 * hidden[:, 2] ** 2 + np.abs(hidden[:, 3]) + hidden[:, 4]
    y += 0.7 * (hidden[:, 5] > 0.5) + 0.5 * rng.standard_normal(rows, dtype=np.float32)
    return X, y.astype(np.float64)


def peak_gib() -> float:
    """Most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--memory-mapped", action="store_true", help="read the rows from a file")
    parser.add_argument("--without-boosting", action="store_true", help="for the peak memory of the fit alone")
    options = parser.parse_args()
    X, y = make(options.rows + TEST_ROWS)
    train, test = slice(0, options.rows), slice(options.rows, None)
    rows = X[train]
    with tempfile.TemporaryDirectory() as folder:
        if options.memory_mapped:
            np.save(Path(folder) / "X.npy", rows)
            rows = np.load(Path(folder) / "X.npy", mmap_mode="r")
        before = peak_gib()
        steps = -(-int(options.epochs * options.rows) // options.batch_size)
        started = time.perf_counter()
        model = GDKLRegressor(
            inference="sparse", n_iter=steps, batch_size=options.batch_size, random_state=0, verbose=1
        ).fit(rows, y[train])
        fitted = time.perf_counter()
        mean = model.predict(X[test])
        predicted = time.perf_counter()
    result = {
        "rows": options.rows,
        "columns": COLUMNS,
        "steps": steps,
        "epochs": steps * options.batch_size / options.rows,
        "gdkl_r2": r2_score(y[test], mean),
        "fit_seconds": fitted - started,
        "predict_seconds": predicted - fitted,
        "peak_gib": peak_gib(),
        "peak_gib_before_fit": before,
    }
    if not options.without_boosting:
        started = time.perf_counter()
        boosting = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
        result["boosting_r2"] = r2_score(y[test], boosting.predict(X[test]))
        result["boosting_seconds"] = time.perf_counter() - started
    print(json.dumps({name: round(value, 4) for name, value in result.items()}, indent=1))


if __name__ == "__main__":
    main()
