"""The list of known datasets: what each is, where it comes from, and the digest of its content."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from gdkl.numerics import OptionError

_NUMBERED = re.compile(r"([a-zA-Z_]*)(\d+)\.\.\1(\d+)")


class Origin(StrEnum):
    """How a dataset comes to the user.

    Example:
        >>> Origin("embedded") is Origin.EMBEDDED
        True
    """

    DOWNLOAD = "download"
    """From its public source on first use, unless a local file is there."""

    FILE = "file"
    """From a local file alone: no verified public source is known."""

    EMBEDDED = "embedded"
    """With the library or one that it depends on; nothing to fetch."""


@dataclass(frozen=True)
class TextSource:
    """A public text file and how to read it.

    The columns are the features, then the targets, in the order of the dataset; columns after these are
    ignored, and so are rows without a value.

    Attributes:
        urls: Addresses of the same file, tried in order.
        delimiter: What stands between two values; `None` is any run of blanks.
        header_lines: Lines before the first row.
        single_precision: Whether the features are rounded to float32, as in the copy that was recorded.
    """

    urls: tuple[str, ...]
    delimiter: str | None = None
    header_lines: int = 0
    single_precision: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset without loading it.

    Attributes:
        name: Name to load it by.
        rows: Number of rows.
        feature_names: Names of the columns of ``X``.
        target_names: Names of the targets.
        source: Where the numbers come from.
        licence: Terms of use, as far as they are stated.
        citation: Work to cite.
        note: What to know before use; may be empty.
        embedded: Whether the library brings it along.
        digest: SHA-256 of the content (see `content_digest`); empty for embedded datasets.
        file: Name of the local file, without its ending.
        file_targets: Names of all targets that the file holds, those of ``target_names`` first.
        text: The public text file; `None` where no verified one is known.
    """

    name: str
    rows: int
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    source: str
    licence: str
    citation: str
    note: str
    embedded: bool
    digest: str
    file: str
    file_targets: tuple[str, ...]
    text: TextSource | None

    @property
    def columns(self) -> int:
        """Number of features."""
        return len(self.feature_names)

    @property
    def origin(self) -> Origin:
        """How the dataset comes to the user."""
        if self.embedded:
            return Origin.EMBEDDED
        return Origin.FILE if self.text is None else Origin.DOWNLOAD


def names() -> tuple[str, ...]:
    """Names of all datasets, those of the paper first.

    Example:
        >>> names()[:3]
        ('boston', 'concrete', 'energy')
    """
    return tuple(entries())


def describe(name: str) -> DatasetInfo:
    """What is known of a dataset without loading it: size, source, licence, citation.

    Args:
        name: One of `names`.

    Raises:
        OptionError: If there is no such dataset.

    Example:
        >>> info = describe("concrete")
        >>> info.rows, info.columns, info.target_names
        (1030, 8, ('compressive_strength_MPa',))
        >>> info.origin
        <Origin.DOWNLOAD: 'download'>
    """
    known = entries()
    if name not in known:
        raise OptionError(f"There is no dataset {name!r}: use one of {', '.join(known)}.")
    return known[name]


@cache
def entries() -> Mapping[str, DatasetInfo]:
    """All entries of the registry file, by name and in its order."""
    text = resources.files("gdkl.datasets").joinpath("registry.toml").read_text(encoding="utf-8")
    return parse_registry(tomllib.loads(text))


def parse_registry(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, DatasetInfo]:
    """Turn the plain tables of a registry file into entries.

    A table with ``file = "other"`` is a second view of that dataset's file and inherits what it does not
    state itself.

    Example:
        >>> raw = {"tiny": {"rows": 2, "features": "x1..x3", "targets": ["y"], "source": "", "licence": "",
        ...                 "citation": "", "digest": ""}}
        >>> parse_registry(raw)["tiny"].feature_names
        ('x1', 'x2', 'x3')
    """
    return {name: _entry(name, {**raw.get(table.get("file", ""), {}), **table}) for name, table in raw.items()}


def _entry(name: str, table: Mapping[str, Any]) -> DatasetInfo:
    targets = tuple(table["targets"])
    text = table.get("text")
    return DatasetInfo(
        name=name,
        rows=table["rows"],
        feature_names=_feature_names(table["features"]),
        target_names=targets,
        source=table["source"],
        licence=table["licence"],
        citation=table["citation"],
        note=table.get("note", ""),
        embedded=table.get("embedded", False),
        digest=table.get("digest", ""),
        file=table.get("file", name),
        file_targets=tuple(table.get("file_targets", targets)),
        text=None if text is None else _text_source(**text),
    )


def _text_source(urls: list[str], **layout: Any) -> TextSource:
    return TextSource(tuple(urls), **layout)


def _feature_names(features: str | list[str]) -> tuple[str, ...]:
    """Names as listed, or numbered ones written as ``"f0..f17"``."""
    if not isinstance(features, str):
        return tuple(features)
    match = _NUMBERED.fullmatch(features)
    if match is None:
        raise OptionError(f"features = {features!r} is not a list of names, nor of the form 'f0..f17'.")
    prefix, first, last = match.groups()
    return tuple(f"{prefix}{number}" for number in range(int(first), int(last) + 1))
