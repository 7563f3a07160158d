"""Seconds that one relevance per column takes, beside BoTorch's GP with one lengthscale per column.

    python benchmarks/relevance.py

Both fit the same synthetic rows, of which three columns matter, to convergence. The error is the mean square at new
rows; targets have variance one. A factorisation of that size is timed in the same run.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

import gdkl.infinite as inf
from gdkl.guide import fit_relevance, fit_relevance_folds

T = TypeVar("T")


def timed(run: Callable[[], T], repeats: int = 3) -> tuple[float, T]:
    """The best time of several, and the last result."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def quarters_out(n: int) -> Tensor:
    """Positions of all rows but a quarter, for each quarter."""
    quarter = torch.arange(n // 4 * 4) % 4
    return torch.stack([torch.nonzero(quarter != k).flatten() for k in range(4)])


def botorch_means(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """BoTorch's model as it comes: from new rows to its means."""
    from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
    from botorch.models import SingleTaskGP  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415

    model = SingleTaskGP(x, y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return lambda new: model.posterior(new).mean.detach().squeeze(-1)


def main() -> None:
    """Print one line per size."""
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for n in (100, 500):
        for d in (10, 50):
            rows = torch.randn(n + 500, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            noise = torch.randn(n + 500, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            targets = torch.sin(2 * rows[:, 0]) + rows[:, 1] * rows[:, 2] + 0.2 * noise
            targets = (targets - targets.mean()) / targets.std()
            x, y, new, wanted = rows[:n], targets[:n], rows[n:], targets[n:]
            C = x @ x.mT + torch.eye(n, dtype=torch.float64)
            factor, _ = timed(lambda C=C: torch.linalg.cholesky(C), 20)
            ours, fit = timed(lambda x=x, y=y: fit_relevance(inf.mlp(), x, y, deviation=1.0))
            folds, _ = timed(lambda x=x, y=y: fit_relevance_folds(inf.mlp(), x, y, quarters_out(len(y)), deviation=1.0))
            error = float((fit.predict(x, y, new).mean - wanted).square().mean())
            print(f"n={n} d={d}: fit {ours:.3f} s ({ours / factor:,.0f} factorisations), error {error:.3f};", end=" ")
            print(f"four folds {folds:.3f} s", end="")
            if importlib.util.find_spec("botorch") is not None:
                theirs, means = timed(lambda x=x, y=y: botorch_means(x, y))
                error = float((means(new) - wanted).square().mean())
                print(f"; BoTorch {theirs:.3f} s ({theirs / ours:.1f} times ours), error {error:.3f}", end="")
            print()


if __name__ == "__main__":
    main()
