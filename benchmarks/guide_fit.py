"""Fitting the guide's output scale and noise against one eigendecomposition of its Gram matrix, in the same run.

Run: python benchmarks/guide_fit.py [--rows 200 455 927 2000]

The evidence is searched to convergence after one `eigh`; the ratio says what the search adds. The last column has the
Gram matrix itself in it as well.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from gdkl import infinite
from gdkl.gp import NOISE_FLOOR
from gdkl.guide import as_kernel_function, fit_guide
from gdkl.guide.evidence import fit_by_evidence
from gdkl.numerics import limit_threads


def milliseconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median time after a warm-up."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Time all sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 455, 927, 2000])
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    print(f"{'n':>6} {'eigh':>9} {'fit':>9} {'ratio':>6}   with the Gram matrix")
    for n in arguments.rows:
        rows = torch.randn(1, n, 13, generator=generator, dtype=torch.float64)
        targets = torch.sin(rows[..., :1]).mT + 0.1 * torch.randn(1, 1, n, generator=generator, dtype=torch.float64)
        network = as_kernel_function(infinite.mlp())
        gram = network.gram(rows)
        gram /= gram.diagonal(dim1=-2, dim2=-1).mean()
        with limit_threads(n):
            alone = milliseconds(lambda gram=gram: torch.linalg.eigh(gram))
            fitted = milliseconds(lambda gram=gram, targets=targets: fit_by_evidence(gram, targets, NOISE_FLOOR))
        whole = milliseconds(lambda rows=rows, targets=targets, net=network: fit_guide(net, rows, targets))
        print(f"{n:>6} {alone:>9.2f} {fitted:>9.2f} {fitted / alone:>6.2f} {whole / alone:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
