"""The regressors with few steps, and a small table to fit them to."""

from __future__ import annotations

import numpy as np
from preset_options import with_preset

from gdkl import (
    DKLRegressor,
    DLVKLRegressor,
    DUERegressor,
    GDKLRegressor,
    GPRegressor,
    NNGPRegressor,
    NNRegressor,
)

MAKERS = {
    "gdkl": lambda **options: GDKLRegressor(**with_preset(**{"n_iter": 40, "random_state": 0, **options})),
    "dkl": lambda **options: DKLRegressor(**with_preset(**{"n_iter": 20, "random_state": 0, **options})),
    "nngp": NNGPRegressor,
    "relevant nngp": lambda **options: NNGPRegressor(**{"relevance": True, **options}),
    "gp": GPRegressor,
    "due": lambda **options: DUERegressor(**with_preset(**{"n_iter": 20, "random_state": 0, **options})),
    "dlvkl": lambda **options: DLVKLRegressor(
        **with_preset(**{"n_iter": 40, "n_inducing": 10, "dtype": "float64", "random_state": 0, **options})
    ),
    "nn": lambda **options: NNRegressor(**with_preset(**{"n_iter": 40, "random_state": 0, **options})),
}


def table(n=60, d=4, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.array([1.0, 10.0, 0.1, 3.0])[:d] + 5
    clean = np.sin(X[:, :1]) * 20 + X[:, 1:2]
    shape = (n, outputs or 1)
    y = clean * np.linspace(1, 2, shape[1]) + rng.normal(size=shape) + 100
    return X, y if outputs else y[:, 0]
