"""A few labelled images of CIFAR-10: the paper's own subsets, other draws, and a small file that holds some of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdkl import datasets
from gdkl.numerics import DataError, OptionError, write_atomically

DATASET, TEST = "cifar10", "cifar10-test"

#: Numbers of labelled images in the paper.
SIZES = (50, 100, 200, 400, 800)

#: Which subset: the paper's own, or a seed of another.
Draw: TypeAlias = "int | str"
PAPER_DRAW = "paper"

#: A file with some of the training images, for machines that should not have to hold all of them.
SUBSET_FILE = "cifar10-subset.npz"

#: Training images that settings are chosen by.
VALIDATION_IMAGES = 5000

#: Channel means and deviations by which the published runs normalise.
MEANS = (0.5071, 0.4867, 0.4408)
DEVIATIONS = (0.2675, 0.2565, 0.2761)

UInt8Array: TypeAlias = NDArray[np.uint8]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FewShotTask:
    """A few labelled images to learn from, and all test images.

    Attributes:
        train_images: uint8, ``(n, channels, height, width)``.
        train_labels: ``(n,)``.
        test_images: uint8.
        test_labels: Of the test images.
        classes: Number of classes.
        digest: SHA-256 of the training images and labels.
    """

    train_images: UInt8Array
    train_labels: IntArray
    test_images: UInt8Array
    test_labels: IntArray
    classes: int
    digest: str


@cache
def _subsets() -> Mapping[str, Any]:
    return json.loads(files("gdkl.paper").joinpath("fewshot_subsets.json").read_text())


def paper_indices(n: int) -> IntArray:
    """Positions of the paper's ``n`` images in CIFAR-10's training part, in its original order.

    Raises:
        OptionError: If the paper has no subset of this size.

    Example:
        >>> paper_indices(50)[:3]
        array([  977,  8270, 25814])
    """
    found = _subsets()["subsets"].get(str(n))
    if found is None:
        raise OptionError(
            f"the paper has no subset of {n} images: use {', '.join(map(str, SIZES))}, or a draw by seed."
        )
    return np.asarray(found["indices"], dtype=np.int64)


def stratified_indices(labels: IntArray, n: int, seed: int) -> IntArray:
    """Positions of ``n`` images drawn by a seed, as many of each class.

    Args:
        labels: Of all images.
        n: How many to draw; what is left over by equal shares goes to classes drawn by the seed.
        seed: Which draw.

    Raises:
        OptionError: If there are not as many.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> drawn = stratified_indices(labels, 10, seed=3)
        >>> np.bincount(labels[drawn]).tolist()
        [5, 5]
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    share, rest = divmod(n, len(classes))
    wanted = np.full(len(classes), share)
    wanted[rng.permutation(len(classes))[:rest]] += 1
    if n < 1 or bool((wanted > counts).any()):
        raise OptionError(f"cannot draw n={n} images, as many of each class, from {len(labels)}.")
    parts = [
        rng.choice(np.flatnonzero(labels == label), int(count), replace=False)
        for label, count in zip(classes, wanted, strict=True)
    ]
    return rng.permutation(np.concatenate(parts)).astype(np.int64)


def load_task(
    n: int, draw: Draw = PAPER_DRAW, data_dir: Path | None = None, *, validation: bool = False
) -> FewShotTask:
    """The training images of one draw and the test images.

    A file ``cifar10-subset.npz`` in ``data_dir`` (see `write_subset`) is enough in place of the whole training part,
    if it holds the images asked for.

    Args:
        n: Number of training images.
        draw: "paper", or the seed of another draw.
        data_dir: Where the files are; see `gdkl.datasets.load`.
        validation: Whether to hold out 5000 training images by the seed, before anything is drawn, in place of the test
            images.

    Raises:
        DataError: If the images cannot be had or are not the recorded ones.
        OptionError: If there is no such subset.
    """
    if validation:
        return _validation_task(n, draw, data_dir)
    X, y = _pick(n, draw, data_dir)
    digest = datasets.image_digest(X, y)
    expected = _subsets()["subsets"].get(str(n), {}).get("digest") if draw == PAPER_DRAW else digest
    if digest != expected:
        raise DataError(f"the {n} training images are not the paper's: their SHA-256 is {digest[:12]}…")
    test = datasets.load_images(TEST, data_dir)
    return FewShotTask(X, y, test.X, test.y, len(test.class_names), digest)


def _validation_task(n: int, draw: Draw, data_dir: Path | None) -> FewShotTask:
    """A task for choosing settings: neither the paper's images nor the test images take part."""
    if draw == PAPER_DRAW:
        raise OptionError("settings are not chosen on the paper's own images: use a draw by seed.")
    images = datasets.load_images(DATASET, data_dir)
    count = min(VALIDATION_IMAGES, len(images.y) // 2)
    held_out, rest = np.split(np.random.default_rng(int(draw)).permutation(len(images.y)), [count])
    train = rest[stratified_indices(images.y[rest], n, int(draw))]
    X, y = images.X[train], images.y[train]
    digest = datasets.image_digest(X, y)
    return FewShotTask(X, y, images.X[held_out], images.y[held_out], len(images.class_names), digest)


def _pick(n: int, draw: Draw, data_dir: Path | None) -> tuple[UInt8Array, IntArray]:
    subset = None if data_dir is None else data_dir / SUBSET_FILE
    if subset is None or not subset.is_file():
        images = datasets.load_images(DATASET, data_dir)
        indices = _indices(images.y, n, draw)
        return images.X[indices], images.y[indices]
    try:
        with np.load(subset, allow_pickle=False) as arrays:
            stored, X, labels = arrays["index"], arrays["X"], arrays["labels"].astype(np.int64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{subset} cannot be read as images of {DATASET} ({error}): remove it.") from error
    if _labels_digest(labels) != _subsets()["labels_sha256"]:
        raise DataError(f"{subset} does not hold the labels of {DATASET}: remove it.")
    indices = _indices(labels, n, draw)
    place = {int(index): position for position, index in enumerate(stored)}
    missing = [index for index in indices.tolist() if index not in place]
    if missing:
        raise DataError(
            f"{subset} lacks {len(missing)} of the {n} images of draw {draw}: write it anew, or remove it to use the "
            f"whole of {DATASET}."
        )
    return np.ascontiguousarray(X[[place[index] for index in indices.tolist()]]), labels[indices]


def _indices(labels: IntArray, n: int, draw: Draw) -> IntArray:
    return paper_indices(n) if draw == PAPER_DRAW else stratified_indices(labels, n, int(draw))


def _labels_digest(labels: IntArray) -> str:
    return hashlib.sha256(labels.astype(np.uint8).tobytes()).hexdigest()


def write_subset(path: Path, picks: Sequence[tuple[int, Draw]], data_dir: Path | None = None) -> int:
    """Write a file with the training images of several draws, and all labels, which other draws are made by.

    Args:
        path: Where to; `load_task` looks for the name ``cifar10-subset.npz``.
        picks: Sizes and draws.
        data_dir: Where the whole training part is.

    Returns:
        How many images it holds.
    """
    images = datasets.load_images(DATASET, data_dir)
    chosen = np.unique(np.concatenate([_indices(images.y, n, draw) for n, draw in picks]))
    arrays = {"index": chosen, "X": images.X[chosen], "labels": images.y.astype(np.uint8)}
    write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    return len(chosen)


def normalise(images: UInt8Array) -> NDArray[np.float32]:
    """Images as the published runs see them: in [0, 1], less each channel's mean, over its deviation.

    Example:
        >>> normalise(np.full((1, 3, 1, 1), 255, np.uint8)).ravel().round(3)
        array([1.843, 2.001, 2.025], dtype=float32)
    """
    mean, deviation = (np.asarray(values, np.float32)[:, None, None] for values in (MEANS, DEVIATIONS))
    return ((images.astype(np.float32) / 255.0 - mean) / deviation).astype(np.float32)
