"""The classifiers with few steps, and small data to fit them to."""

from __future__ import annotations

import numpy as np
from preset_options import with_preset

from gdkl import DKLClassifier, DLVKLClassifier, DUEClassifier, GDKLClassifier, NNClassifier, NNGPClassifier

MAKERS = {
    "gdkl": lambda **options: GDKLClassifier(**with_preset(**{"n_iter": 40, "random_state": 0, **options})),
    "dkl": lambda **options: DKLClassifier(**with_preset(**{"n_iter": 30, "random_state": 0, **options})),
    "nngp": lambda **options: NNGPClassifier(**with_preset(**{"random_state": 0, **options})),
    "due": lambda **options: DUEClassifier(**with_preset(**{"n_iter": 20, "random_state": 0, **options})),
    "dlvkl": lambda **options: DLVKLClassifier(
        **with_preset(**{"n_iter": 40, "n_inducing": 10, "dtype": "float64", "random_state": 0, **options})
    ),
    "nn": lambda **options: NNClassifier(**with_preset(**{"n_iter": 40, "random_state": 0, **options})),
}


def table(n=60, classes=3, d=4, seed=0):
    """Rows around one centre per class, in columns of different units."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = 2.5 * rng.normal(size=(classes, d))
    X = (centres[labels] + rng.normal(size=(n, d))) * np.array([1.0, 10.0, 0.1, 3.0])[:d] + 5
    return X, labels


def images(n=24, classes=2, shape=(2, 8, 8), seed=0):
    """Integer images whose left or right half is brighter."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    X = rng.integers(0, 120, size=(n, *shape))
    half = shape[2] // 2
    for i, label in enumerate(labels):
        X[i, :, :, label * half : (label + 1) * half] += 100
    return X.astype(np.uint8), labels
