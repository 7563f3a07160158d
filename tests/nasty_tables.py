"""Small tables with everything that makes real ones hard, and with a known truth.

A table is made of columns that a function depends on and of columns that only disturb: nearly constant ones, copies,
sums of others, heavy tails, units that differ by many orders. Its rows may repeat, and its targets have much noise,
little, none, or noise with heavy tails. New rows come from the same distribution, so that the share of them that an
interval holds can be compared with its level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class NastyTable(NamedTuple):
    """Training rows with targets, new rows with theirs, and in words what is nasty.

    Attributes:
        X: ``(n, d)``.
        y: ``(n,)``.
        X_new: ``(m, d)``, drawn as the training rows are.
        y_new: ``(m,)``, with noise.
        kinds: Names of what was drawn.
    """

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    kinds: tuple[str, ...]


Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]

#: Columns that disturb, from the generator and the columns that matter, ``(n, k)``.
COLUMNS: dict[str, Draw] = {
    "constant": lambda random, z: np.full(len(z), 3.7),
    "nearly constant": lambda random, z: 1000 + 1e-7 * random.normal(size=len(z)),
    "constant but for one row": lambda random, z: (np.arange(len(z)) == 7).astype(float),
    "a copy": lambda random, z: z[:, 0],
    "nearly a copy": lambda random, z: z[:, 0] * (1 + 1e-9 * random.normal(size=len(z))),
    "a sum": lambda random, z: z.sum(axis=1),
    "a difference of 1e-6": lambda random, z: z[:, -1] + 1e-6 * random.normal(size=len(z)),
    "Cauchy": lambda random, z: random.standard_cauchy(size=len(z)),
    "log-normal": lambda random, z: np.exp(3 * random.normal(size=len(z))),
    "counts": lambda random, z: random.poisson(0.3, size=len(z)).astype(float),
    "one of a hundred": lambda random, z: (random.uniform(size=len(z)) < 0.01).astype(float),
    "units of 1e12": lambda random, z: 1e12 * random.normal(size=len(z)),
    "units of 1e-12": lambda random, z: 1e-12 * random.normal(size=len(z)),
    "a large offset": lambda random, z: 1e7 + random.normal(size=len(z)),
    "noise": lambda random, z: random.normal(size=len(z)),
    "whole numbers": lambda random, z: np.round(z[:, 0]),
}

#: Functions of the columns that matter, which are uniform on (−2, 2).
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda z: z.sum(axis=1),
    "a sine": lambda z: np.sin(2 * z[:, 0]) + z[:, -1],
    "a step": lambda z: np.sign(z[:, 0]),
    "a product": lambda z: z[:, 0] * z[:, -1],
    "a peak": lambda z: np.exp(-8 * z[:, 0] ** 2),
    "an exponential": lambda z: np.exp(1.5 * z[:, 0]),
}

#: Noise in parts of the function's standard deviation.
NOISES: dict[str, Draw] = {
    "no noise": lambda random, f: 0 * f,
    "noise of 1e-6": lambda random, f: 1e-6 * random.normal(size=len(f)),
    "noise of 0.1": lambda random, f: 0.1 * random.normal(size=len(f)),
    "noise of 1": lambda random, f: random.normal(size=len(f)),
    "noise with three degrees of freedom": lambda random, f: 0.2 * random.standard_t(3, size=len(f)),
    "noise of half of the rows": lambda random, f: (
        0.5 * random.normal(size=len(f)) * (random.uniform(size=len(f)) < 0.5)
    ),
}

#: What is done to the targets at the end.
UNITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda y: y,
    "units of 1e9": lambda y: 1e9 * y,
    "units of 1e-9": lambda y: 1e-9 * y,
    "far from zero": lambda y: 1e5 + y,
    "rounded": lambda y: np.round(4 * y) / 4,
}


def nasty_table(seed: int, *, new: int = 100) -> NastyTable:
    """The table of a seed, with 30 to 90 training rows, sometimes 200 to 400, and up to 9 columns.

    Args:
        seed: Draws everything.
        new: Number of new rows.
    """
    random = np.random.default_rng(seed)

    def pick(table: dict[str, Any]) -> tuple[str, Any]:
        name = str(random.choice(list(table)))
        return name, table[name]

    # Rounding in matrices of more rows is larger.
    n = int(random.integers(200, 401) if random.uniform() < 0.1 else random.integers(30, 91))
    z = random.uniform(-2, 2, size=(n + new, int(random.integers(1, 4))))
    kinds: list[str] = []
    if random.uniform() < 0.3:
        kinds.append("rows that repeat")
        # A training row is drawn from a third of them, so that most occur more than once, with other noise.
        z[:n] = z[random.integers(0, n // 3, size=n)]
    disturbing = [pick(COLUMNS) for _ in range(int(random.integers(0, 7)))]
    (function, f), (noise, e), (units, change) = pick(FUNCTIONS), pick(NOISES), pick(UNITS)
    clean = f(z)
    y = change(clean + clean.std() * e(random, clean))
    columns = np.column_stack([z, *(draw(random, z) for _, draw in disturbing)])
    columns = columns[:, random.permutation(columns.shape[1])]
    names = (*kinds, function, noise, units, *(name for name, _ in disturbing))
    return NastyTable(columns[:n], y[:n], columns[n:], y[n:], names)
