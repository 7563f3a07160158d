"""A million rows predicted in bounded memory.

    python benchmarks/predict_rows.py [--rows 1000000] [--columns 77] [--device cpu]

Prints rows a second and the memory that predicting took beyond the data.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from gdkl import GDKLRegressor


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=77)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((options.rows, options.columns), dtype=np.float32)
    some = X[:5000].astype(np.float64)
    model = GDKLRegressor(inference="sparse", n_iter=50, device=options.device, random_state=0)
    model.fit(some, some[:, 0] + 0.1 * rng.standard_normal(len(some)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    mean, std = model.predict(X, return_std=True)
    seconds = time.perf_counter() - started
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert mean.shape == std.shape == (options.rows,)
    assert np.isfinite(mean).all()
    print(
        json.dumps(
            {
                "rows": options.rows,
                "columns": options.columns,
                "seconds": round(seconds, 2),
                "rows_per_second": round(options.rows / seconds),
                "gib_above_the_data": round(more / 2**20, 3),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
