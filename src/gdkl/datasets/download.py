"""Downloading the public files of a dataset, checking their content, and storing it in the cache."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from gdkl.datasets import registry
from gdkl.datasets.files import DATA_VARIABLE, Arrays, check_digest, reason_of, write
from gdkl.datasets.formats import FORMAT_ERRORS, parse
from gdkl.datasets.registry import DatasetInfo, ImageInfo, MixedInfo, OriginalInfo, PublicFile
from gdkl.numerics import DataError, cache_dir

#: Seconds without an answer after which an address counts as out of reach.
TIMEOUT = 30.0


class MissingDatasetError(DataError):
    """There is no copy of a dataset here, and none could be downloaded; the message says what to put where."""


def download(info: DatasetInfo | ImageInfo) -> Path:
    """Download a dataset, and what comes in the same archive, into the cache, if its content is the recorded one."""
    if info.download is None:
        raise MissingDatasetError(
            f"No verified download of the dataset {info.name!r} is known ({info.source}). {_ways(info)}"
        )
    found = [_fetch(info, file) for file in info.download.files]
    # Two views of one file, such as a table with one or two targets, are stored once.
    together = [
        other
        for other in registry.entries().values()
        if other.download is not None
        and other.download.files == info.download.files
        and (other.name == info.name or other.file != info.file)
    ]
    for other, (X, y) in [(other, _checked(found, other)) for other in together]:
        write(X, y, other)
    return cache_dir() / f"{info.file}.npz"


def _checked(found: list[tuple[str, bytes]], info: DatasetInfo | ImageInfo) -> Arrays:
    """All arrays of the public files, if those of the dataset have the recorded digest."""
    origin = f"It came from {' and '.join(url for url, _ in found)}; nothing was stored. {_ways(info)}"
    try:
        X, y = parse([content for _, content in found], info)
    except FORMAT_ERRORS as error:
        raise DataError(f"The public file of {info.name!r} cannot be read: {reason_of(error)}. {origin}") from error
    used = y
    if isinstance(info, DatasetInfo):
        count = len(info.target_names)
        used = y[:, 0] if count == 1 else y[:, :count]
    wrong = check_digest(X, used, info)
    if wrong is not None:
        raise DataError(f"The public file does not hold the dataset {info.name!r}: {wrong}. {origin}")
    return X, y


def _fetch(info: DatasetInfo | ImageInfo, file: PublicFile) -> tuple[str, bytes]:
    """The first address that answers and its content, if its checksum is the published one."""
    import pooch  # noqa: PLC0415  (it pulls in an HTTP library, which a local file does not need)

    get = pooch.HTTPDownloader(timeout=TIMEOUT)
    reasons: list[str] = []
    for url in file.urls:
        # The raw file never enters the cache: only content that was checked does.
        with tempfile.TemporaryDirectory(prefix="gdkl-") as folder:
            target = Path(folder) / "download"
            try:
                get(url, str(target), None)
                content = target.read_bytes()
            except OSError as error:  # what the HTTP library raises for lost connections and 404s alike
                reason = reason_of(error)
                # A lost connection is described at length, with the address cut to pieces; its kind says as much.
                reasons.append(reason if len(reason) < 160 else f"{url} did not answer: {type(error).__name__}")
                continue
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if file.md5 not in (None, found):
            other = f"{len(content)} bytes with the MD5 {found[:12]}… and not {file.md5}"
            raise DataError(f"{url} is not the published file: {other}; nothing was stored. {_ways(info)}")
        return url, content
    raise MissingDatasetError(f"The dataset {info.name!r} could not be downloaded ({reasons[0]}). {_ways(info)}")


def _ways(info: DatasetInfo | ImageInfo) -> str:
    """How to provide a file by hand."""
    arrays = " (arrays X and y)" if isinstance(info, DatasetInfo) else ""
    if isinstance(info, OriginalInfo):
        arrays = f" ({info.page})"
    elif isinstance(info, MixedInfo):
        arrays = f" (a CSV file with the target in the column {info.target_names[0]!r})"
    return (
        f"Provide {info.file_names}{arrays} yourself in one of three ways: pass data_dir= (--data-dir) a folder that "
        f"holds it, set {DATA_VARIABLE} to such a folder, or put it into the cache folder {cache_dir()}."
    )
