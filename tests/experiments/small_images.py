"""Stand-ins for CIFAR-10, and the experiment on all of it in two processes: ``torchrun ... small_images.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gdkl import datasets
from gdkl.experiments import SPECS, draws
from gdkl.experiments.runner import run

#: Settings that train a tiny network for a moment.
TINY = {"preset.depth": 10, "preset.widen_factor": 1, "preset.dropout": 0.1}


def images(n, seed, side=8):
    """Three classes of colour images that differ by their brightness, as uint8."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.normal(60 * y[:, None, None, None] + 60, 25, size=(n, 3, side, side)).clip(0, 255).astype(np.uint8)
    return datasets.ImageSet(X, y, ("a", "b", "c"), name="cifar10")


def load(name, data_dir=None):
    return images(60, 1) if name.endswith("-test") else images(96, 0)


def full_cells(methods=("gdkl",), **more):
    spec = SPECS["full"]
    changes = TINY | {"epochs": 3, "preset.batch_size": 16, "preset.learning_rate": 0.05} | more
    return list(spec.cells(["cifar10"], {name: spec.settings(name, changes) for name in methods}))


if __name__ == "__main__":
    draws.load_images = load
    run(SPECS["full"], full_cells(), Path(sys.argv[1]), device="cpu")
