"""Datasets that need no file: scikit-learn's diabetes table and the paper's one-dimensional example."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from gdkl.datasets.content import FloatArray, Table
from gdkl.datasets.files import wrap
from gdkl.datasets.registry import describe
from gdkl.numerics import OptionError


def toy_function(x: ArrayLike) -> FloatArray:
    """The noise-free target of the paper's one-dimensional example.

    f(x) = 0.6 − exp(−(x − 2)²) − exp(−(x − 6)² / 10) − 1 / (x² + 1)

    Example:
        >>> toy_function([0.0, 2.0]).round(4)
        array([-0.4456, -0.8019])
    """
    x = np.asarray(x, dtype=np.float64)
    return 0.6 - np.exp(-((x - 2.0) ** 2)) - np.exp(-((x - 6.0) ** 2) / 10.0) - 1.0 / (x**2 + 1.0)


def toy(n: int = 800, *, seed: int = 0, noise_variance: float = 0.05) -> Table:
    """Draw ``n`` points of the paper's example: `toy_function` with Gaussian noise, uniform in [−2, 12].

    Example:
        >>> X, y, *_ = toy(5, seed=1)
        >>> X.shape, y.shape
        ((5, 1), (5,))
    """
    if n < 1 or seed < 0 or not noise_variance >= 0:
        got = f"got n={n}, seed={seed}, noise_variance={noise_variance}"
        raise OptionError(f"toy needs n of at least 1 and a seed and noise_variance of at least 0; {got}.")
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 12.0, size=n)
    y = toy_function(x) + np.sqrt(noise_variance) * rng.standard_normal(n)
    return cast(Table, wrap(x[:, None], y, describe("toy")))


def diabetes() -> Table:
    """The diabetes table that comes with scikit-learn, in its original units."""
    # No other dataset needs scikit-learn. By name: pyright takes long to infer what the function returns.
    X, y = import_module("sklearn.datasets").load_diabetes(return_X_y=True, scaled=False)
    return cast(Table, wrap(np.asarray(X, np.float64), np.asarray(y, np.float64), describe("diabetes")))
