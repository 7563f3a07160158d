"""Fetching public archives of images, checking what they hold, and keeping it as local files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gdkl.datasets import image_registry
from gdkl.datasets.digest import image_digest
from gdkl.datasets.download import first_answer
from gdkl.datasets.image_files import file_names, write_images
from gdkl.datasets.image_registry import ArchiveFormat, ImageInfo, ImageSource, PublicFile
from gdkl.datasets.store import DATA_VARIABLE
from gdkl.numerics import DataError, cache_dir

#: What says that an IDX file holds bytes in three dimensions, or in one.
_IDX_IMAGES, _IDX_LABELS = 0x00000803, 0x00000801


def download_images(info: ImageInfo) -> Path:
    """Download a set of images into the cache, if its content is the recorded one.

    Sets that come in the same archive, such as the two parts of CIFAR-10, are stored together.

    Returns:
        The path of the file in the cache.

    Raises:
        DataError: If no source is known, none answers, or the content differs; nothing is stored then.
    """
    if info.public is None:
        raise DataError(f"No verified download of the dataset {info.name!r} is known ({info.source}). {_ways(info)}")
    contents = [_fetch(info, file) for file in info.public.files]
    together = [other for other in image_registry.image_entries().values() if _shares(other, info)]
    checked = [(other, *_parse(contents, other)) for other in together]
    for other, X, y in checked:
        write_images(cache_dir(), X, y, other)
    return cache_dir() / f"{info.name}.npz"


def _shares(other: ImageInfo, info: ImageInfo) -> bool:
    return other.public is not None and info.public is not None and other.public.files == info.public.files


def _fetch(info: ImageInfo, file: PublicFile) -> bytes:
    url, content = first_answer(info.name, file.urls, _ways(info))
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise DataError(
            f"{url} is not the published file: {len(content)} bytes with the MD5 {found[:12]}… and not "
            f"{file.md5[:12]}…; nothing was stored. {_ways(info)}"
        )
    return content


def _parse(contents: list[bytes], info: ImageInfo) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of a set, whose digest is the recorded one."""
    source = info.public
    try:
        if source is None:
            raise ValueError("it has no public file")
        flat, y = _from_tar(contents[0], source, info) if source.format is ArchiveFormat.CIFAR else _from_idx(*contents)
        X = flat.reshape(-1, *info.shape)
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"The public file of {info.name!r} cannot be read ({reason}); nothing was stored. {_ways(info)}"
        ) from error
    digest = image_digest(X, y)
    if digest != info.digest:
        raise DataError(
            f"The public file of {info.name!r} holds other images: SHA-256 {digest[:12]}… and not "
            f"{info.digest[:12]}…; nothing was stored. {_ways(info)}"
        )
    return X, y


def _from_tar(content: bytes, source: ImageSource, info: ImageInfo) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    size = source.label_bytes + int(np.prod(info.shape))
    parts: list[NDArray[np.uint8]] = []
    # Members are read by name into memory: nothing of the archive is ever unpacked or unpickled.
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for name in source.members:
            member = archive.extractfile(name)
            if member is None:
                raise ValueError(f"{name} is not a file")
            parts.append(np.frombuffer(member.read(), dtype=np.uint8).reshape(-1, size))
    records = np.concatenate(parts)
    return (
        np.ascontiguousarray(records[:, source.label_bytes :]),
        records[:, source.label_bytes - 1].astype(np.int64),
    )


def _from_idx(images: bytes, labels: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    def body(content: bytes, kind: int, dimensions: int) -> NDArray[np.uint8]:
        raw = gzip.decompress(content)
        header = np.frombuffer(raw[: 4 * (1 + dimensions)], dtype=">u4")
        if header[0] != kind:
            raise ValueError(f"its first word is {header[0]:#010x} and not {kind:#010x}")
        return np.frombuffer(raw, dtype=np.uint8, offset=4 * (1 + dimensions)).reshape(*map(int, header[1:]))

    return body(images, _IDX_IMAGES, 3), body(labels, _IDX_LABELS, 1).astype(np.int64)


def _ways(info: ImageInfo) -> str:
    """How to provide files by hand."""
    return (
        f"Provide {file_names(info)} yourself in one of three ways: pass data_dir= (--data-dir) a folder that holds "
        f"it, set {DATA_VARIABLE} to such a folder, or put it into the cache folder {cache_dir()}."
    )
