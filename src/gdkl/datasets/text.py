"""Reading the public text files: columns of numbers, plain or compressed."""

from __future__ import annotations

import gzip
import zlib

import numpy as np

from gdkl.datasets.registry import DatasetInfo, TextSource
from gdkl.datasets.table import FloatArray
from gdkl.numerics import DataError

_GZIP_START = b"\x1f\x8b"


def parse_text(content: bytes, text: TextSource, info: DatasetInfo) -> tuple[FloatArray, FloatArray]:
    r"""Read features and all targets from the bytes of a text file.

    Values are told apart by the delimiter alone, never by fixed positions: a value that is wider than its
    column's heading keeps all of its digits.

    Args:
        content: The file, possibly compressed by gzip.
        text: How it is laid out.
        info: The dataset that it holds.

    Returns:
        Features, shape ``(n, d)``, and targets, shape ``(n, t)`` with one column for each of
        ``info.file_targets``.

    Raises:
        DataError: If the content is not columns of numbers.

    Example:
        >>> from gdkl.datasets.registry import parse_registry
        >>> raw = {"tiny": {"rows": 2, "features": ["a", "b"], "targets": ["y"], "source": "", "licence": "",
        ...                 "citation": ""}}
        >>> text = TextSource(urls=("https://example.org/tiny.csv",), delimiter=",")
        >>> X, Y = parse_text(b"1,2,3\n4,5,6\n", text, parse_registry(raw)["tiny"])
        >>> X.tolist(), Y.tolist()
        ([[1.0, 2.0], [4.0, 5.0]], [[3.0], [6.0]])
    """
    try:
        if content.startswith(_GZIP_START):
            content = gzip.decompress(content)
        lines = content.decode("utf-8-sig").splitlines()[text.header_lines :]
        # Spreadsheets leave rows of bare delimiters behind the last row.
        rows = [line for line in lines if line.replace(text.delimiter or " ", "").strip()]
        if not rows:
            raise ValueError("it has no rows")
        used = range(info.columns + len(info.file_targets))
        values = np.loadtxt(rows, delimiter=text.delimiter, usecols=used, ndmin=2, dtype=np.float64)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"The text of the dataset {info.name!r} cannot be read: {reason}.") from error
    features, targets = values[:, : info.columns], values[:, info.columns :]
    if text.single_precision:
        features = features.astype(np.float32)
    return np.ascontiguousarray(features, dtype=np.float64), np.ascontiguousarray(targets)
