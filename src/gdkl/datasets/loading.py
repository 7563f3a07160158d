"""Loading a dataset by name, from wherever a copy of it is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, cast, overload

from gdkl.datasets.content import ImageSet, Table
from gdkl.datasets.download import download
from gdkl.datasets.embedded import diabetes, toy
from gdkl.datasets.files import PathLike, find, read
from gdkl.datasets.registry import Origin, describe_any, describe_images
from gdkl.numerics import OptionError, cache_dir

#: Sets of images, for type checkers; `image_names` is the list in force.
ImageName: TypeAlias = Literal[
    "cifar10", "cifar10-test", "cifar100", "cifar100-test", "svhn-test", "fashion-mnist-test"
]


# A name that is a plain str counts as a table's: what most callers load, and what they would otherwise have to
# distinguish from images at every use.
@overload
def load(  # pyright: ignore[reportOverlappingOverload]
    name: ImageName, data_dir: PathLike | None = None, *, seed: None = None
) -> ImageSet: ...
@overload
def load(name: str, data_dir: PathLike | None = None, *, seed: int | None = None) -> Table: ...
def load(name: str, data_dir: PathLike | None = None, *, seed: int | None = None) -> Table | ImageSet:
    """Load a dataset by name: a table, or a set of labelled images.

    A dataset that is not embedded is looked for as ``<name>.npz`` (or in parts) in ``data_dir``, in the folder that the
    environment variable ``GDKL_DATA`` names, and in the cache (``GDKL_CACHE`` moves it). If it is in none of them, it
    is downloaded into the cache. The content is checked against a recorded SHA-256. Tables of numbers and text, whose
    ``X`` is a DataFrame, are local files ``tables/<name>.csv.gz`` without a recorded SHA-256. So are ``"ctslice"`` and
    ``"buzz"``, which are read from the files of the UCI repository, slice_localization_data.csv and Twitter.data.

    Args:
        name: One of `names` or of `image_names`.
        data_dir: A folder with local files, looked at first.
        seed: Which draw of the generated dataset ``"toy"``; no other dataset takes it.

    Returns:
        A table or images, which unpack as ``X, y, feature_names (or class_names), target_name``.

    Example:
        >>> X, y, feature_names, target_name = load("diabetes")
        >>> X.shape, y.shape, feature_names[:3], target_name
        ((442, 10), (442,), ('age', 'sex', 'bmi'), 'progression')
        >>> load("toy", seed=3).y.shape
        (800,)
    """
    info = describe_any(name)
    if name == "toy":
        return toy(info.rows, seed=0 if seed is None else seed)
    if seed is not None:
        raise OptionError(f"The dataset {name!r} is fixed and takes no seed: leave seed out.")
    if name == "diabetes":
        return diabetes()
    return read(find(info, data_dir) or (download(info),), info)


def load_images(name: str, data_dir: PathLike | None = None) -> ImageSet:
    """Load a set of images by name, from where `load` would; a table's name is refused.

    Example:
        >>> images, labels, *names = load_images("cifar10-test")  # doctest: +SKIP
    """
    return cast(ImageSet, load(describe_images(name).name, data_dir))


def locate(name: str, data_dir: PathLike | None = None) -> Path | None:
    """Local file that `load` would read (of several parts the first); None if there is none or none is needed.

    Example:
        >>> locate("toy") is None
        True
    """
    info = describe_any(name)
    paths = None if info.origin is Origin.EMBEDDED else find(info, data_dir)
    return None if paths is None else paths[0]


def fetch(name: str, *, force: bool = False) -> Path:
    """Path of a dataset's file in the cache, whose content is checked; downloaded if it is not there.

    Args:
        name: One of `names` or of `image_names`.
        force: Whether to download it again even if the cache holds it.

    Example:
        >>> path = fetch("boston")  # doctest: +SKIP
    """
    info = describe_any(name)
    if info.origin is Origin.EMBEDDED:
        raise OptionError(f"The dataset {name!r} comes with the library: there is nothing to fetch.")
    path = cache_dir() / f"{info.file}.npz"
    if force or not path.is_file():
        return download(info)
    read((path,), info)
    return path
