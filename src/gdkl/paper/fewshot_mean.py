"""The few-shot experiment's probabilities beside its result files, and the mean of several seeds: a deep ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl.numerics import write_atomically
from gdkl.paper.image_runs import class_scores
from gdkl.paper.results import write_result
from gdkl.predictive import FloatArray, Views, mean_over_views

#: How an image is looked at, by the name that scores have in result files.
VIEWS = {"test": Views.PLAIN, "mirrored": Views.MIRRORED, "shifted": Views.SHIFTED}


def views_probabilities(
    images: NDArray[np.uint8], predict: Callable[[NDArray[np.uint8]], FloatArray]
) -> dict[str, FloatArray]:
    """Class probabilities of images, averaged over the views of each name."""
    found = mean_over_views(images, predict, list(VIEWS.values()))
    return {name: found[views] for name, views in VIEWS.items()}


def views_scores(views: Mapping[str, FloatArray], labels: NDArray[np.int64]) -> dict[str, dict[str, float]]:
    """Scores of the probabilities of each view."""
    return {view: class_scores(probs, labels) for view, probs in views.items()}


def write_probabilities(result: Path, views: Mapping[str, FloatArray], labels: NDArray[np.int64]) -> None:
    """Write the probabilities of one seed beside its result file, in single precision."""
    arrays = {view: probs.astype(np.float32) for view, probs in views.items()}
    write_atomically(
        result.with_suffix(".npz"),
        lambda file: np.savez_compressed(file, allow_pickle=False, labels=labels, **arrays),
    )


def mean_of_seeds(results: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> dict[str, Any] | None:
    """Score the mean of the seeds' probabilities, and write it to a result file of its own.

    Args:
        results: Contents of the seeds' result files, which differ by the seed alone.
        paths: Where those are; the probabilities lie beside them.

    Returns:
        Content of the mean's result file; None if the probabilities of a seed are not there.
    """
    stored = [path.with_suffix(".npz") for path in paths]
    if len(paths) < 2 or not all(path.is_file() for path in stored):
        return None
    labels: NDArray[np.int64] = np.empty(0, np.int64)
    sums: dict[str, FloatArray] = {}
    for path in stored:
        with np.load(path, allow_pickle=False) as arrays:
            labels = arrays["labels"].astype(np.int64)
            for view in set(arrays.files) - {"labels"}:
                probs = arrays[view].astype(np.float64)
                sums[view] = sums[view] + probs if view in sums else probs
    seeds = [result["seed"] for result in results]
    means = {view: total / len(paths) for view, total in sums.items()}
    first = results[0]
    result = {
        **{key: value for key, value in first.items() if key not in ("seed", "trained_together", "guide_fit")},
        "mean_of_seeds": seeds,
        "fit_seconds": round(sum(result["fit_seconds"] for result in results), 2),
        "splits": [{"seeds": seeds, **views_scores(means, labels)}],
    }
    name = paths[0].stem.rsplit("-seed", 1)[0]
    write_result(paths[0].with_name(f"{name}-mean-of-{len(paths)}.json"), result)
    return result
