"""Readers of public files, by format: from the bytes of the files of a dataset to its arrays.

A reader takes the contents of the files, the dataset and the layout that the registry states. It returns features and
one column per target of the file, or images and labels, and raises `FORMAT_ERRORS` for content of another kind.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gdkl.datasets.files import READ_ERRORS, Arrays
from gdkl.datasets.registry import DatasetInfo, ImageInfo

#: What a reader raises for content of another kind.
FORMAT_ERRORS = (*READ_ERRORS, tarfile.TarError)

#: First word of an IDX file that holds bytes in three dimensions, or in one.
_IDX_IMAGES, _IDX_LABELS = 0x00000803, 0x00000801


def read_text(
    contents: Sequence[bytes],
    info: DatasetInfo,
    *,
    delimiter: str | None = None,
    header_lines: int = 0,
    single_precision: bool = False,
) -> Arrays:
    """Columns of numbers, plain or compressed by gzip: features, then targets; columns after these are ignored.

    Values are separated by the delimiter (None is any run of blanks) alone, never by fixed positions: a value that is
    wider than its column's heading keeps all of its digits. ``single_precision`` rounds features to float32, as in the
    copy that was recorded.
    """
    [content] = contents
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    lines = content.decode("utf-8-sig").splitlines()[header_lines:]
    # Spreadsheets leave rows of bare delimiters after the last row.
    rows = [line for line in lines if line.replace(delimiter or " ", "").strip()]
    if not rows:
        raise ValueError("it has no rows")
    used = range(info.columns + len(info.file_targets))
    values = np.loadtxt(rows, delimiter=delimiter, usecols=used, ndmin=2, dtype=np.float64)
    features, targets = values[:, : info.columns], values[:, info.columns :]
    if single_precision:
        features = features.astype(np.float32)
    return np.ascontiguousarray(features, dtype=np.float64), np.ascontiguousarray(targets)


def read_cifar(
    contents: Sequence[bytes], info: ImageInfo, *, members: Sequence[str] = (), label_bytes: int = 1
) -> Arrays:
    """A tar of records: label bytes (the last one counts), then the pixels, channel by channel."""
    [content] = contents
    size = label_bytes + int(np.prod(info.shape))
    parts: list[NDArray[np.uint8]] = []
    # Members are read by name into memory: nothing of the archive is ever unpacked or unpickled.
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for name in members:
            member = archive.extractfile(name)
            if member is None:
                raise ValueError(f"{name} is not a file")
            parts.append(np.frombuffer(member.read(), dtype=np.uint8).reshape(-1, size))
    records = np.concatenate(parts)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, *info.shape)
    return images, records[:, label_bytes - 1].astype(np.int64)


def read_idx(contents: Sequence[bytes], info: ImageInfo) -> Arrays:
    """Two gzipped arrays after a short header, the images and the labels, as MNIST's."""

    def body(content: bytes, kind: int, dimensions: int) -> NDArray[np.uint8]:
        raw = gzip.decompress(content)
        header = np.frombuffer(raw[: 4 * (1 + dimensions)], dtype=">u4")
        if header[0] != kind:
            raise ValueError(f"its first word is {header[0]:#010x} and not {kind:#010x}")
        return np.frombuffer(raw, dtype=np.uint8, offset=4 * (1 + dimensions)).reshape(*map(int, header[1:]))

    images, labels = contents
    return body(images, _IDX_IMAGES, 3).reshape(-1, *info.shape), body(labels, _IDX_LABELS, 1).astype(np.int64)


#: A new format (a CSV with text columns, an archive of tables) is a reader here and its name in the registry.
READERS: Mapping[str, Callable[..., Arrays]] = {"text": read_text, "cifar": read_cifar, "idx": read_idx}


def parse(contents: Sequence[bytes], info: DatasetInfo | ImageInfo) -> Arrays:
    """Read the public files of a dataset by the format that the registry states."""
    if info.download is None:
        raise ValueError("it has no public file")
    return READERS[info.download.format](contents, info, **info.download.layout)
