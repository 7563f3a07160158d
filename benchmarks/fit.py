"""Whole fits: seconds to a given test log-likelihood, the library's schedule beside the published one.

Run: python benchmarks/fit.py --data-dir DIR [--datasets boston energy] [--splits 0 1] [--record fits.json]

Each contender trains on the same splits of the same tables, alone, one after the other. The published schedule runs for
its 7000 steps, the library's for several lengths. The level to reach is the published schedule's mean test
log-likelihood over the splits, less one standard error where there are several; the ratio is of the published time to
that of the shortest of ours that gets there.

With --record every fit goes into a file, and what is there already is not fitted again: a long comparison can be made
in pieces, as by --contenders published, then --contenders 1000 2000, while nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gdkl import GDKLRegressor, datasets, metrics

PUBLISHED = "published"
OPTIONS: dict[str, Any] = {"preset": "paper"}


def fit(name: str, split: int, contender: str, data_dir: Path | None) -> dict[str, float]:
    """Seconds and test log-likelihood of one fit."""
    X, y, *_ = datasets.load(name, data_dir=data_dir)
    train, test = datasets.published_split(len(X), split)
    options = OPTIONS if contender == PUBLISHED else {"n_iter": int(contender)}
    model = GDKLRegressor(random_state=0, **options)
    started = time.perf_counter()
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - started
    level = metrics.summary(model.predict_distribution(X[test]), y[test])["log_likelihood"]
    return {"seconds": round(seconds, 2), "log_likelihood": round(level, 4)}


def report(name: str, splits: list[int], fits: dict[str, dict[str, float]]) -> None:
    """One line per contender, and when ours reach the published level."""
    rows: dict[str, tuple[float, list[float]]] = {}
    contenders = {key.split("/")[1] for key in fits if key.startswith(f"{name}/")}
    for contender in sorted(contenders, key=lambda c: (c != PUBLISHED, len(c), c)):
        found = [fits[key] for split in splits if (key := f"{name}/{contender}/{split}") in fits]
        if len(found) == len(splits):
            rows[contender] = (
                float(np.mean([one["seconds"] for one in found])),
                [one["log_likelihood"] for one in found],
            )
            print(f"{name}, {contender}: {rows[contender][0]:.1f} s per fit, LL {np.mean(rows[contender][1]):.3f}")
    if PUBLISHED not in rows:
        return
    there, levels = rows.pop(PUBLISHED)
    margin = np.std(levels, ddof=1) / np.sqrt(len(levels)) if len(levels) > 1 else 0.0
    goal = float(np.mean(levels) - margin)
    sooner = [there / seconds for seconds, ours in rows.values() if np.mean(ours) >= goal]
    print(f"{name}: LL {goal:.3f} is reached " + (f"{sooner[0]:.1f} times sooner" if sooner else "by none of ours"))


def main() -> None:
    """Fit what is missing, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--datasets", nargs="+", default=["boston", "energy", "concrete"])
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--contenders", nargs="+", default=[PUBLISHED, "1000", "1500", "2000"])
    parser.add_argument("--record", type=Path, default=None)
    arguments = parser.parse_args()
    record: Path | None = arguments.record
    fits: dict[str, dict[str, float]] = json.loads(record.read_text()) if record is not None and record.exists() else {}
    for name in arguments.datasets:
        for split in arguments.splits:
            for contender in arguments.contenders:
                key = f"{name}/{contender}/{split}"
                if key not in fits:
                    fits[key] = fit(name, split, contender, arguments.data_dir)
                    print(key, fits[key], flush=True)
                    if record is not None:
                        record.write_text(json.dumps(fits, indent=1, sort_keys=True) + "\n")
        report(name, arguments.splits, fits)


if __name__ == "__main__":
    main()
