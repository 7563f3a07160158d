"""Loading a dataset by name, from wherever a copy of it is at hand."""

from __future__ import annotations

from pathlib import Path

from gdkl.datasets.download import download
from gdkl.datasets.embedded import diabetes, toy
from gdkl.datasets.registry import describe
from gdkl.datasets.store import PathLike, cache_dir, find, read_table
from gdkl.datasets.table import Table
from gdkl.numerics import OptionError


def load(name: str, data_dir: PathLike | None = None, *, seed: int | None = None) -> Table:
    """Load a dataset by name.

    A dataset that is not embedded is looked for as ``<name>.npz`` in ``data_dir``, in the folder that the
    environment variable ``GDKL_DATA`` names, and in the cache (``GDKL_CACHE`` moves it); if it is in none of
    them, it is downloaded into the cache. The numbers are checked against a recorded SHA-256, so they are the
    same wherever they come from.

    Args:
        name: One of `names`.
        data_dir: A folder with local files, looked at first.
        seed: Which draw of the generated dataset ``"toy"``; no other dataset takes it.

    Returns:
        A table that unpacks as ``X, y, feature_names, target_name``.

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
    info = describe(name)
    if name == "toy":
        return toy(info.rows, seed=0 if seed is None else seed)
    if seed is not None:
        raise OptionError(f"The dataset {name!r} is fixed and takes no seed: leave seed out.")
    if name == "diabetes":
        return diabetes()
    return read_table(find(info, data_dir) or download(info), info)


def locate(name: str, data_dir: PathLike | None = None) -> Path | None:
    """Local file that `load` would read, or `None` where it would need none or have to download one.

    Args:
        name: One of `names`.
        data_dir: A folder with local files, looked at first.

    Raises:
        OptionError: If there is no such dataset.
        DataError: If ``data_dir`` does not exist.

    Example:
        >>> locate("toy") is None
        True
    """
    info = describe(name)
    return None if info.embedded else find(info, data_dir)


def fetch(name: str, *, force: bool = False) -> Path:
    """Make sure that the cache holds a dataset, downloading it if need be.

    Args:
        name: One of `names`.
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
    info = describe(name)
    if info.embedded:
        raise OptionError(f"The dataset {name!r} comes with the library: there is nothing to fetch.")
    path = cache_dir() / f"{info.file}.npz"
    if not force and path.is_file():
        read_table(path, info)
        return path
    return download(info)
