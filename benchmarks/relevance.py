"""Seconds that one relevance per column takes, beside BoTorch's GP with one lengthscale per column.

    python benchmarks/relevance.py

Both fit the same synthetic rows to convergence. The time of one Cholesky factorisation of that size is measured in the
same run: it says how many of them a fit is worth.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

import torch

import gdkl.infinite as inf
from gdkl.guide import fit_relevance, predict_folds


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """The best time of several."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def fit_botorch(x: torch.Tensor, y: torch.Tensor) -> None:
    """BoTorch's model as it comes."""
    from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
    from botorch.models import SingleTaskGP  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415

    model = SingleTaskGP(x, y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def main() -> None:
    """Print one line per size."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for n in (100, 500):
        for d in (10, 50):
            x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            noise = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * noise
            y = (y - y.mean()) / y.std()
            C = x @ x.mT + torch.eye(n, dtype=torch.float64)
            cholesky = seconds(lambda C=C: torch.linalg.cholesky(C), 20)
            fit = fit_relevance(inf.mlp(), x, y, deviation=1.0)
            ours = seconds(lambda x=x, y=y: fit_relevance(inf.mlp(), x, y, deviation=1.0))
            folds = torch.arange(n) % 4
            of_folds = seconds(lambda fit=fit, x=x, y=y, f=folds: predict_folds(fit, x, y, f, deviation=1.0))
            line = f"n={n} d={d}: fit {ours:.3f} s ({ours / cholesky:,.0f} Cholesky), four folds {of_folds:.3f} s"
            if importlib.util.find_spec("botorch") is not None:
                theirs = seconds(lambda x=x, y=y: fit_botorch(x, y))
                line += f", BoTorch {theirs:.3f} s: {theirs / ours:.1f} times ours"
            print(line)


if __name__ == "__main__":
    main()
