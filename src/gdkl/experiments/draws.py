"""A few labelled images of CIFAR-10: the paper's own subsets, other draws, and a small file that holds some of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdkl import datasets
from gdkl.experiments.spec import Split
from gdkl.numerics import DataError, OptionError, write_atomically

#: Numbers of labelled images in the paper.
SIZES = (50, 100, 200, 400, 800)

#: The paper's own subsets, as a draw.
PAPER_DRAW = "paper"

#: A file with some of the training images, for machines that should not have to hold all of them.
SUBSET_FILE = "cifar10-subset.npz"

Images: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]


@cache
def _subsets() -> Mapping[str, Any]:
    return json.loads(files("gdkl.experiments").joinpath("fewshot_subsets.json").read_text())


@lru_cache(maxsize=2)
def load_images(name: str, data_dir: Path | None) -> datasets.ImageSet:
    """A set of images, kept in memory: decoding takes seconds, and the cells of an experiment share two sets."""
    return datasets.load_images(name, data_dir)


def paper_indices(n: int) -> Labels:
    """Positions of the paper's ``n`` images in CIFAR-10's training part, in its original order."""
    found = _subsets()["subsets"].get(str(n))
    if found is None:
        raise OptionError(f"the paper has no subset of {n} images: use one of {SIZES}, or a draw by seed.")
    return np.asarray(found["indices"], dtype=np.int64)


def stratified_draw(labels: Labels, n: int, seed: int) -> Labels:
    """Positions of ``n`` rows drawn by a seed, as many of each class; the seed also says which classes have one more.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> np.bincount(labels[stratified_draw(labels, 10, seed=3)]).tolist()
        [5, 5]
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    share, rest = divmod(n, len(classes))
    wanted = np.full(len(classes), share)
    wanted[rng.permutation(len(classes))[:rest]] += 1
    if n < 1 or bool((wanted > counts).any()):
        raise OptionError(f"cannot draw n={n} rows, as many of each class, from {len(labels)}.")
    parts = [
        rng.choice(np.flatnonzero(labels == label), int(count), replace=False)
        for label, count in zip(classes, wanted, strict=True)
    ]
    return rng.permutation(np.concatenate(parts)).astype(np.int64)


def few_images(dataset: str, n: int, draw: Split, data_dir: Path | None = None) -> tuple[Images, Labels, str]:
    """The training images of one draw, their labels and their SHA-256.

    A file ``cifar10-subset.npz`` in ``data_dir`` (see `write_subset`) is enough in place of the whole training part,
    if it holds the images asked for. A draw is "paper", or the seed of another one.
    """
    X, y = _pick(dataset, n, draw, data_dir)
    digest = datasets.image_digest(X, y)
    expected = _subsets()["subsets"].get(str(n), {}).get("digest") if draw == PAPER_DRAW else digest
    if digest != expected:
        raise DataError(f"the {n} training images are not the paper's: their SHA-256 is {digest[:12]}…")
    return X, y, digest


def _pick(dataset: str, n: int, draw: Split, data_dir: Path | None) -> tuple[Images, Labels]:
    subset = None if data_dir is None else Path(data_dir) / SUBSET_FILE
    if subset is None or not subset.is_file():
        images = load_images(dataset, data_dir)
        indices = _indices(images.y, n, draw)
        return images.X[indices], images.y[indices]
    try:
        with np.load(subset, allow_pickle=False) as arrays:
            stored, X, labels = arrays["index"], arrays["X"], arrays["labels"].astype(np.int64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{subset} cannot be read as images of {dataset} ({error}): remove it.") from error
    if _labels_digest(labels) != _subsets()["labels_sha256"]:
        raise DataError(f"{subset} does not hold the labels of {dataset}: remove it.")
    indices = _indices(labels, n, draw)
    place = {int(index): position for position, index in enumerate(stored)}
    missing = [index for index in indices.tolist() if index not in place]
    if missing:
        lacks = f"{subset} lacks {len(missing)} of the {n} images of draw {draw}"
        raise DataError(f"{lacks}: write it again, or remove it to use the whole of {dataset}.")
    return np.ascontiguousarray(X[[place[index] for index in indices.tolist()]]), labels[indices]


def _indices(labels: Labels, n: int, draw: Split) -> Labels:
    if draw == PAPER_DRAW:
        return paper_indices(n)
    if not isinstance(draw, int):
        raise OptionError(f"draw={draw!r} must be 'paper' or a seed, a whole number of at least 0.")
    return stratified_draw(labels, n, draw)


def _labels_digest(labels: Labels) -> str:
    return hashlib.sha256(labels.astype(np.uint8).tobytes()).hexdigest()


def write_subset(path: Path, picks: Sequence[tuple[int, Split]], data_dir: Path | None = None) -> int:
    """Write a file with the training images of several draws, and all labels, from which other draws are made.

    Args:
        path: Where to; runs look for the name ``cifar10-subset.npz``.
        picks: Sizes and draws.
        data_dir: Where the whole training part is.

    Returns:
        How many images it holds.
    """
    images = load_images("cifar10", data_dir)
    chosen = np.unique(np.concatenate([_indices(images.y, n, draw) for n, draw in picks]))
    arrays = {"index": chosen, "X": images.X[chosen], "labels": images.y.astype(np.uint8)}
    write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    return len(chosen)
