"""Exact guided training on many rows: seconds and peak memory of a few steps, beside the library's own estimate.

Run: python benchmarks/large.py --rows 10000 --steps 2                   # on the CPU: below 8 GiB
     python benchmarks/large.py --rows 30000 --steps 20 --device cuda    # on one GPU
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from gdkl import GDKLRegressor
from gdkl.training import Problem

GIB = 2**30


def main() -> None:
    """Fit once, predict once, print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=13)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.rows, arguments.columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=arguments.rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    on_gpu = arguments.device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    estimate = Problem(arguments.rows, 1, 1, guided=True, device=arguments.device.partition(":")[0])

    started = time.perf_counter()
    model = GDKLRegressor(n_iter=arguments.steps, device=arguments.device, random_state=0).fit(X, y)
    fitted = time.perf_counter()
    mean = model.predict(X[:1000])
    done = time.perf_counter()

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"n = {arguments.rows}, {arguments.steps} steps on {arguments.device}, torch {torch.__version__}")
    print(f"fit {fitted - started:.1f} s, of which training by the estimate {estimate.seconds(arguments.steps):.1f} s")
    print(f"prediction of {len(mean)} rows {done - fitted:.2f} s")
    print(f"memory of the process: peak {peak / GIB:.2f} GiB, before the fit {before / GIB:.2f} GiB")
    print(f"a step by the estimate: {estimate.bytes() / GIB:.2f} GiB")
    if on_gpu:
        print(f"memory of the GPU: peak {torch.cuda.max_memory_allocated() / GIB:.2f} GiB")


if __name__ == "__main__":
    main()
