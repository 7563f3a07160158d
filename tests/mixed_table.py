"""A made table with every kind of column."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd

N = 60


def mixed(n=N, seed=0):
    """A table with every kind of column, and targets that need the categories."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Ghent", "Bonn", "Oslo"], n)
    size = rng.normal(50, 9, n)
    ordered = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.2, np.nan, size),
            "city": city,
            "garden": rng.random(n) < 0.5,
            "heating": pd.Series(rng.choice(["gas", "oil", None], n), dtype="category"),
            "rooms": pd.Series(rng.integers(1, 6, n), dtype="Int64").mask(rng.random(n) < 0.2),
            "grade": pd.Series(rng.choice(["low", "mid", "high"], n), dtype=ordered),
            "tax": [Decimal(int(v)) / 10 for v in rng.integers(0, 90, n)],
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "name": [f"house {i}" for i in range(n)],
            "empty": np.nan,
            "zone": pd.Series(rng.choice([7, 8, 9, 10], n), dtype="category"),
        }
    )
    y = size + 20 * (city == "Oslo") + 5 * frame["garden"].to_numpy() + rng.normal(size=n)
    return frame, y.astype(float)
