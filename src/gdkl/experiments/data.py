"""The rows of a cell: what is trained on, and what is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl import datasets
from gdkl.experiments import draws
from gdkl.experiments.spec import Cell
from gdkl.numerics import OptionError

#: Which training rows are held out for validation: one draw for all cells.
_VALIDATION_SEED = 0

#: Methods that take a table with text and missing cells as it is; the others are given numbers.
AS_GIVEN = ("catboost", "gdkl", "guides", "nngp", "nngp_relevance", "gp_ard", "dkl")

#: Rows of a mixed table that are scored at most.
TEST_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a cell.

    Attributes:
        X, y: Rows to learn from.
        X_test, y_test: Rows to be scored on.
        digest: SHA-256 of few training images, else empty.
        others: Further rows that are scored, by name.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    digest: str = ""
    others: Mapping[str, tuple[NDArray[Any], NDArray[Any]]] = field(
        default_factory=dict[str, tuple[NDArray[Any], NDArray[Any]]]
    )


def table(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """A regression table, cut as the published code cuts it: nine tenths for training."""
    X, y, *_ = datasets.load(cell.dataset, data_dir)
    train, test = datasets.published_split(len(X), int(cell.split or 0))
    train, test = held_out(train, test, validation)
    return Part(X[train], y[train], X[test], y[test])


def mixed_table(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """Some rows of a table that may have text and missing cells."""
    X, y, *_ = datasets.load(cell.dataset, data_dir)
    return cut(
        X, np.log1p(y) if cell.dataset == "blog" else y, cell, validation
    )  # counts over four orders of magnitude


def cut(X: Any, y: NDArray[Any], cell: Cell, validation: int) -> Part:
    """The training rows of a cell, at most four fifths of all; up to 2000 others are scored."""
    if not isinstance(cell.size, int) or cell.size < 2:
        raise OptionError(f"size={cell.size!r} must be a number of training rows of at least 2.")
    order = np.random.default_rng(int(cell.split or 0)).permutation(len(y))
    train, test, _ = np.split(order, np.cumsum([min(cell.size, int(0.8 * len(y))), TEST_ROWS]))
    train, test = held_out(train, test, validation)
    rows = getattr(X, "iloc", X)
    found = (rows[train], rows[test])
    X_train, X_test = found if isinstance(X, np.ndarray) or cell.method in AS_GIVEN else encoded(*found)
    return Part(X_train, y[train], X_test, y[test])


def encoded(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Tables as numbers: one column per category, and the median with an indicator where a number is missing."""
    from sklearn.compose import make_column_selector, make_column_transformer  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.preprocessing import OneHotEncoder  # noqa: PLC0415

    # A category that is seen once, such as a name, tells nothing about other rows.
    rare: Any = {"handle_unknown": "infrequent_if_exist", "min_frequency": 2, "sparse_output": False}
    numeric = make_column_selector(dtype_include=["number", "bool"])
    encoder = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), numeric),
        (OneHotEncoder(**rare), make_column_selector(dtype_exclude=["number", "bool"])),
    )
    return encoder.fit_transform(X), encoder.transform(X_test)


def bundled_classes(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """A classification table that comes with scikit-learn; the training part is stratified."""
    from sklearn import datasets as bundled  # noqa: PLC0415  (specs are read without scikit-learn)
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    if not isinstance(cell.size, float) or not 0 < cell.size < 1:
        raise OptionError(f"size={cell.size!r} must be the part of the rows to train on, between 0 and 1.")
    X, y = (np.asarray(array) for array in getattr(bundled, f"load_{cell.dataset}")(return_X_y=True))
    train, test = train_test_split(np.arange(len(y)), train_size=cell.size, stratify=y, random_state=cell.split)
    train, test = held_out(np.asarray(train), np.asarray(test), validation)
    return Part(X[train], y[train], X[test], y[test])


def few_images(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """A few labelled images: the paper's own, or drawn by a seed; validation images lie outside of the draw."""
    if not isinstance(cell.size, int) or cell.size < 1:
        raise OptionError(f"size={cell.size!r} must be a number of images of at least 1.")
    if not validation:
        X, y, digest = draws.few_images(cell.dataset, cell.size, cell.split, data_dir)
        test = draws.load_images(f"{cell.dataset}-test", data_dir)
        return Part(X, y, test.X, test.y, digest)
    # Neither the paper's images nor the test images take part where settings are chosen.
    if not isinstance(cell.split, int):
        raise OptionError("settings are not chosen on the paper's own images: use --draws with a seed.")
    images = draws.load_images(cell.dataset, data_dir)
    _check_validation(validation, len(images.y))
    held_out, rest = np.split(np.random.default_rng(cell.split).permutation(len(images.y)), [validation])
    train = rest[draws.stratified_draw(images.y[rest], cell.size, cell.split)]
    digest = datasets.image_digest(images.X[train], images.y[train])
    return Part(images.X[train], images.y[train], images.X[held_out], images.y[held_out], digest)


def all_images(cell: Cell, data_dir: Path | None, validation: int) -> Part:
    """All training images of a set; validation images are drawn with as many of each class."""
    train = draws.load_images(cell.dataset, data_dir)
    if validation:
        _check_validation(validation, len(train.y))
        held = draws.stratified_draw(train.y, validation, _VALIDATION_SEED)
        kept = np.setdiff1d(np.arange(len(train.y)), held)
        return Part(train.X[kept], train.y[kept], train.X[held], train.y[held])
    test = draws.load_images(f"{cell.dataset}-test", data_dir)
    return Part(train.X, train.y, test.X, test.y)


def held_out(train: NDArray[Any], test: NDArray[Any], validation: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Training rows and scored rows; with validation some of the training rows take the place of the test rows."""
    if not validation:
        return train, test
    _check_validation(validation, len(train))
    mixed = np.random.default_rng(_VALIDATION_SEED).permutation(train)
    return mixed[validation:], mixed[:validation]


def _check_validation(validation: int, rows: int) -> None:
    if not 0 < validation < rows:
        raise OptionError(f"--validation {validation} must leave some of the {rows} training rows to learn from.")
