"""Loading a dataset by name, from wherever a copy of it is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, overload

from gdkl.datasets.download import download
from gdkl.datasets.embedded import diabetes, toy
from gdkl.datasets.image_download import download_images
from gdkl.datasets.image_files import find_images, read_images
from gdkl.datasets.image_registry import describe_images, image_names
from gdkl.datasets.image_set import ImageSet
from gdkl.datasets.registry import DatasetInfo, describe, names
from gdkl.datasets.store import PathLike, find, read_table
from gdkl.datasets.table import Table
from gdkl.numerics import OptionError, cache_dir

#: Sets of images, for type checkers; `image_names` is the list in force.
ImageName: TypeAlias = Literal[
    "cifar10", "cifar10-test", "cifar100", "cifar100-test", "svhn-test", "fashion-mnist-test"
]


# A name that is a plain str is taken for a table's: what most callers load, and what they would otherwise have to
# tell from images at every use.
@overload
def load(  # pyright: ignore[reportOverlappingOverload]
    name: ImageName, data_dir: PathLike | None = None, *, seed: None = None
) -> ImageSet: ...
@overload
def load(name: str, data_dir: PathLike | None = None, *, seed: int | None = None) -> Table: ...
def load(name: str, data_dir: PathLike | None = None, *, seed: int | None = None) -> Table | ImageSet:
    """Load a dataset by name: a table of numbers, or a set of labelled images.

    A dataset that is not embedded is looked for as ``<name>.npz`` in ``data_dir``, in the folder that the
    environment variable ``GDKL_DATA`` names, and in the cache (``GDKL_CACHE`` moves it); if it is in none of
    them, it is downloaded into the cache. The numbers are checked against a recorded SHA-256, so they are the
    same wherever they come from.

    Args:
        name: One of `names` or of `image_names`.
        data_dir: A folder with local files, looked at first.
        seed: Which draw of the generated dataset ``"toy"``; no other dataset takes it.

    Returns:
        A table that unpacks as ``X, y, feature_names, target_name``, or images that unpack as
        ``X, y, class_names, target_name``.

    Raises:
        OptionError: If there is no such dataset, or it takes no seed.
        DataError: If no copy can be had, or one holds other numbers; the message says what to do.

    Example:
        >>> X, y, feature_names, target_name = load("diabetes")
        >>> X.shape, y.shape, feature_names[:3], target_name
        ((442, 10), (442,), ('age', 'sex', 'bmi'), 'progression')
        >>> load("toy", seed=3).y.shape
        (800,)
    """
    if name in image_names():
        if seed is not None:
            raise OptionError(f"The dataset {name!r} is fixed and takes no seed: leave seed out.")
        return load_images(name, data_dir)
    info = _describe(name)
    if name == "toy":
        return toy(info.rows, seed=0 if seed is None else seed)
    if seed is not None:
        raise OptionError(f"The dataset {name!r} is fixed and takes no seed: leave seed out.")
    if name == "diabetes":
        return diabetes()
    return read_table(find(info, data_dir) or download(info), info)


def load_images(name: str, data_dir: PathLike | None = None) -> ImageSet:
    """Load a set of images by name, from where `load` would.

    Local files are ``<name>.npz``, or the set's parts where it comes in several; the pixels and labels are checked
    against a recorded SHA-256.

    Args:
        name: One of `image_names`.
        data_dir: A folder with local files, looked at first.

    Returns:
        Images that unpack as ``X, y, class_names, target_name``.

    Raises:
        OptionError: If there is no such set of images.
        DataError: If no copy can be had, or one holds other images; the message says what to do.

    Example:
        >>> load_images("boston")
        Traceback (most recent call last):
        ...
        gdkl.numerics.errors.OptionError: There is no set of images 'boston': use one of cifar10, cifar10-test, \
cifar100, cifar100-test, svhn-test, fashion-mnist-test.
    """
    info = describe_images(name)
    return read_images(find_images(info, data_dir) or (download_images(info),), info)


def locate(name: str, data_dir: PathLike | None = None) -> Path | None:
    """Local file that `load` would read, or `None` where it would need none or have to download one.

    Of images in several parts, the first.

    Args:
        name: One of `names` or of `image_names`.
        data_dir: A folder with local files, looked at first.

    Raises:
        OptionError: If there is no such dataset.
        DataError: If ``data_dir`` does not exist.

    Example:
        >>> locate("toy") is None
        True
    """
    if name in image_names():
        paths = find_images(describe_images(name), data_dir)
        return None if paths is None else paths[0]
    info = _describe(name)
    return None if info.embedded else find(info, data_dir)


def fetch(name: str, *, force: bool = False) -> Path:
    """Make sure that the cache holds a dataset, downloading it if need be.

    Args:
        name: One of `names` or of `image_names`.
        force: Whether to download it anew even if the cache holds it.

    Returns:
        The path of the file in the cache, whose content has been checked.

    Raises:
        OptionError: If there is no such dataset, or it is embedded.
        DataError: If it cannot be downloaded, or the content is not the recorded one.

    Example:
        >>> fetch("toy")
        Traceback (most recent call last):
        ...
        gdkl.numerics.errors.OptionError: The dataset 'toy' comes with the library: there is nothing to fetch.
    """
    if name in image_names():
        images = describe_images(name)
        stored = cache_dir() / f"{name}.npz"
        if not force and stored.is_file():
            read_images((stored,), images)
            return stored
        return download_images(images)
    info = _describe(name)
    if info.embedded:
        raise OptionError(f"The dataset {name!r} comes with the library: there is nothing to fetch.")
    path = cache_dir() / f"{info.file}.npz"
    if not force and path.is_file():
        read_table(path, info)
        return path
    return download(info)


def _describe(name: str) -> DatasetInfo:
    """What is known of a table; a name that is none is refused with all that there are."""
    if name not in names():
        raise OptionError(f"There is no dataset {name!r}: use one of {', '.join((*names(), *image_names()))}.")
    return describe(name)
